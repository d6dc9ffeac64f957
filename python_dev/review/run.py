"""`lakehouse review`: what a change of the project does, in comparison with the commit that it began at.

Without data: both sides are compiled, and their code and declarations compared. With data: in a fork of the lake the
code before the change builds what the change can reach, then the changed code does, from the same input; the tables of
both are compared. Nothing of production changes but the tags of the fork and the lease that it takes.
"""

import io
import json
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyiceberg.catalog import Catalog

from python_common import private_files
from python_common.catalog.catalog import load_table
from python_common.config.environment import home, read_env_file
from python_common.config.settings import Settings, from_environment
from python_common.errors import Issue, UserError
from python_common.locks.lock import locked
from python_common.log import log
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_dbt import run as dbt
from python_dbt.compile import COPIED, cached_manifest, compiled_manifest
from python_dbt.manifest import REFERENCED, DbtManifest, Node
from python_dbt.project import Project
from python_dev.review import contracts, cost, quick, scope
from python_dev.review.canonical import is_volatile
from python_dev.review.contracts import Finding
from python_dev.review.cost import Cost
from python_dev.review.profile import profiles
from python_dev.review.report import Review
from python_dev.review.scope import Side
from python_dev.review.tables import STORED_VIEWS, Comparison, is_compared_view
from python_jobs import fork, fork_catalog

FORK = "review"
BEFORE, AFTER = "before", "after"
# What dbt reports of a node.
NOT_BUILT = ("error", "skipped")
# What both sides are made of.
REVIEWED = (*(f"{name}/" for name in (*COPIED, "macros")), "dbt_project.yml", *scope.SETTINGS)
OF_THE_MOMENT = "its rows depend on when or how tables were built"


def review(
    settings: Settings | None,
    project: Project,
    base: str,
    weeks: int,
    is_static: bool,
    with_samples: bool = False,
    with_costs: bool = False,
    landed: Path | None = None,
    compiling: Future[DbtManifest] | None = None,
) -> Review:
    """Review the project's directory, uncommitted changes included, in comparison with its merge base with `base`.

    Of exported tables the newest `weeks` weeks are compared. Samples have no personal data, not even masked. Costs need
    a build of both sides in full; plans only of what the change decides on. A quick review reads the rows in `landed`,
    and neither needs settings nor does code alone. `compiling` gives the project, if it is being compiled already. A
    change that does not compile is breaking. Raises a UserError if the code before it cannot be compiled.
    """
    commit = _git(project, "merge-base", base, "HEAD").decode().strip()
    scratch = home() / "review"
    with locked("review"):
        # Of a killed review.
        private_files.delete(scratch)
        if settings:
            fork.drop(settings, FORK, missing_ok=True)
        with tempfile.TemporaryDirectory(dir=private_files.directory(scratch)) as name:
            old = Path(name)
            with tarfile.open(fileobj=io.BytesIO(_git(project, "archive", "--format=tar", commit))) as archive:
                # Python 3.11.2 has no argument `filter`, and ignores this. Git stores no path out of the directory.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(old)  # noqa: S202
            with ThreadPoolExecutor() as pool:
                of_base = (cached_manifest, old, commit) if landed else (compiled_manifest, old)
                compiled = [pool.submit(*of_base), compiling or pool.submit(compiled_manifest, project.directory)]
                built = quick.build(compiled[0].result(), old, landed) if landed else None
            before = scope.side(compiled[0].result(), old)
            try:
                after = scope.side(compiled[1].result(), project.directory)
            except UserError as error:
                broken = [Finding("breaking", "the changed project", error.message), *_unmade(before.manifest, project)]
                return Review(commit, project.commit() or "unknown", is_static, scope.ReviewScope(), broken, {}, [], {})
            of_code = _of_code(before, after, commit, project, is_static)
            of_code = replace(of_code, findings=[*of_code.findings, *_not_reviewed(project, commit)])
            if built:
                tests = [_tests(of_code, one.manifest) for one in (before, after)]
                return quick.review(of_code, *built, quick.Places(after.manifest, project.directory), tests)
            has_work = any(_selected(of_code, one.manifest) or _tests(of_code, one.manifest) for one in (before, after))
            if is_static or settings is None or not has_work:
                return of_code
            projects = Project(old, project.env), project
            try:
                return _of_data(of_code, settings, projects, (before, after), weeks, with_samples, with_costs)
            finally:
                fork.drop(settings, FORK, missing_ok=True)


def _git(project: Project, *arguments: str) -> bytes:
    try:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=project.directory, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise UserError("git is missing", "Install git: a review compares with a former commit") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().partition("\n")[0]
        remedy = "Give a branch, tag or commit that git knows"
        raise UserError(f"git {arguments[0]} failed ({reason})", remedy) from None


def _unmade(before: DbtManifest, project: Project) -> Iterator[Finding]:
    """Yield the exposures that are made of deleted files; of all that is missing dbt names the first."""
    for exposure in before.exposures.values():
        behind = [before.nodes.get(name) for name in (*exposure.parents, *before.ancestors(*exposure.parents))]
        files = {node.original_file_path for node in behind if node and node.resource_type in REFERENCED}
        if gone := sorted(file for file in files if not (project.directory / file).exists()):
            yield Finding("breaking", exposure.label or exposure.name, f"made of {', '.join(gone)}, which is deleted")


def _of_code(before: Side, after: Side, commit: str, project: Project, is_static: bool) -> Review:
    compared = scope.compare(before, after)
    nodes = {**before.manifest.nodes, **after.manifest.nodes}
    unit_tests = {**before.manifest.unit_tests, **after.manifest.unit_tests}
    reached = compared.reached
    tests = [
        Finding("look", nodes[name].name, f"test changed: {reason}")
        for name, reason in compared.changed.items()
        if nodes[name].resource_type == "test" and name in compared.own
    ]
    checksums = ({name: test.checksum for name, test in side.manifest.unit_tests.items()} for side in (before, after))
    tests += [
        Finding("look", test.name, f"unit test {'changed' if name in after.manifest.unit_tests else 'removed'}")
        for name in contracts.differing(*checksums)
        if (test := before.manifest.unit_tests.get(name))
    ]
    built = {name for name in {*compared.changed, *compared.affected} if nodes[name].resource_type in REFERENCED}
    stale = [nodes[name].name for name in sorted(built - compared.own) if _is_of_the_moment(nodes[name])]
    affected = [Finding("note", contracts.few(stale), f"made of what changes, and not compared: {OF_THE_MOMENT}")]
    layouts: dict[str, list[str]] = {}
    for name in sorted(built & compared.changed.keys()):
        if compared.changed[name].startswith(scope.CONFIG):
            layouts.setdefault(compared.changed[name], []).append(nodes[name].name)
    stored = [Finding("note", contracts.few(names), reason) for reason, names in layouts.items()]
    stored += [Finding("note", name, "macro changed, which no node calls") for name in compared.uncalled]
    settings = [
        Finding("look", name, "changed: it is for all nodes, and what it does to them is not compared")
        for name in contracts.differing(before.settings, after.settings)
    ]
    return Review(
        base=commit,
        change=project.commit() or "unknown",
        is_static=is_static,
        scope=compared,
        findings=[
            *contracts.findings(before.manifest, after.manifest),
            *(*tests, *settings, *stored),
            *(affected if stale else ()),
        ],
        names={unique_id: node.name for unique_id, node in {**nodes, **unit_tests}.items()},
        edges=[
            (nodes[parent].name, nodes[name].name)
            for name in sorted(reached)
            for parent in nodes[name].parents
            if parent in reached and nodes[name].resource_type in REFERENCED
        ],
        exposures={
            exposure.label or exposure.name: [nodes[name].name for name in exposure.parents if name in reached]
            for exposure in {**before.manifest.exposures, **after.manifest.exposures}.values()
            if reached & {*exposure.parents}
        },
        sql={
            nodes[name].name: (_compiled(before, name), _compiled(after, name))
            for name in sorted({*compared.own, *compared.added, *compared.removed})
        },
        not_compared={
            nodes[name].name: OF_THE_MOMENT
            for name in sorted(compared.own)
            if not is_static and nodes[name].resource_type in REFERENCED and _is_of_the_moment(nodes[name])
        },
    )


def _not_reviewed(project: Project, commit: str) -> Iterator[Finding]:
    """Yield the folders with changed files that no part of a review reads."""
    listed = (
        _git(project, "diff", "--name-only", "--relative", "-z", commit),
        _git(project, "ls-files", "-oz", "--exclude-standard"),
    )
    files = {file for names in listed for file in names.decode().split("\0") if file}
    others = sorted(file for file in files if not file.startswith(REVIEWED))
    if others:
        folders = ", ".join(dict.fromkeys(file.partition("/")[0] for file in others))
        count = f"{len(others)} file{'s' * (len(others) > 1)}"
        yield Finding("note", f"{folders} changed", f"{count}, not reviewed here")


def _compiled(side: Side, name: str) -> str:
    return (side.manifest.nodes[name].compiled_code or "") if name in side.manifest.nodes else ""


def _selected(of_code: Review, manifest: DbtManifest) -> list[Node]:
    """Return the nodes of one side that the change can reach and whose rows can be compared, by name."""
    nodes = [manifest.nodes[unique_id] for unique_id in of_code.scope.reached & manifest.nodes.keys()]
    return sorted(
        (node for node in nodes if node.resource_type in REFERENCED and not _is_of_the_moment(node)),
        key=lambda node: node.name,
    )


def _tests(of_code: Review, manifest: DbtManifest) -> list[Node]:
    """Return the tests of one side whose answer the change can reach, and the unit tests of what it changes."""
    reached, changed = of_code.scope.reached, {*of_code.scope.changed, *of_code.scope.added}
    tests = [node for node in manifest.nodes.values() if node.resource_type == "test"]
    tests = [node for node in tests if node.unique_id in changed or not reached.isdisjoint(node.parents)]
    return [*tests, *(test for test in manifest.unit_tests.values() if not changed.isdisjoint(test.parents))]


def _unknown(of_code: Review, manifest: DbtManifest) -> dict[str, list[str]]:
    """Return the names of the tests of one side that read what a review does not build, with the names of that."""
    stale = {name for name in of_code.scope.reached & manifest.nodes.keys() if _is_of_the_moment(manifest.nodes[name])}
    return {
        test.name: sorted(manifest.nodes[name].name for name in behind)
        for test in _tests(of_code, manifest)
        if test.resource_type == "test" and (behind := stale & {*manifest.ancestors(test.unique_id)})
    }


def _is_of_the_moment(node: Node) -> bool:
    """Return whether rows depend on when or how tables were built, so that those of two builds differ."""
    return node.resource_type == "snapshot" or is_volatile(node.compiled_code or "")


def _of_data(
    of_code: Review,
    settings: Settings,
    projects: tuple[Project, Project],
    sides: tuple[Side, Side],
    number_of_weeks: int,
    with_samples: bool,
    with_costs: bool,
) -> Review:
    """Build both sides in a fork and compare their tables."""
    chosen = [_selected(of_code, side.manifest) for side in sides]
    events = fork.forks_directory(settings) / FORK / fork.EVENTS
    log.info("forking the lake, without copying data")
    made = fork.create(settings, FORK, timedelta(hours=24), cost.spark_properties(events))
    base = fork_catalog.opened(made.settings, fork_catalog.BASE_CATALOG)
    exported = [node for node in sides[1].manifest.models if node.is_export]
    weeks = _newest_weeks(base, exported, number_of_weeks)
    env = {**projects[0].env, **read_env_file(made.env_file)}
    runs, failed, since, until = [], set[str](), 0.0, 0.0
    planned = _replanned(of_code.scope, sides)
    # A view's plan is that of storing its rows.
    stored = [node for node in chosen[0] if node.materialized not in ("view", "ephemeral")]
    again = [node for node in stored if node.unique_id in planned and not with_costs]
    unknown = {name: behind for side in sides for name, behind in _unknown(of_code, side.manifest).items()}
    for side, nodes, project, name in zip(sides, chosen, projects, (BEFORE, AFTER), strict=True):
        tests = [test for test in _tests(of_code, side.manifest) if test.name not in unknown]
        names = [node.name for node in nodes]
        log.info(f"{name} the change: building {len(nodes)} nodes, and running {len(tests)} tests")
        run = Project(project.directory, {**env, "DBT_TARGET_PATH": str(made.directory / f"target-{name}")})
        if name == BEFORE and not _has_inputs(base, [*nodes, *tests], side.manifest):
            names = [f"+{one.name}" for one in (*nodes, *tests)]
        # The lake is what the code before has made: that build finds most of it unchanged.
        issues, answers = _built(run, names, tests, weeks, is_refreshed=with_costs or name == AFTER)
        runs.append(([*issues, *_store_views(run, side.manifest, nodes)], answers))
        fork_catalog.remember(made.directory, name)
        if name == BEFORE:
            since = time.time()
            # What was skipped or followed new batches has no plan to compare. The rows of this build are not compared.
            _, of_plans = _built(run, [node.name for node in again], (), weeks, is_refreshed=True)
            failed = {unique_id for unique_id, status in of_plans.items() if status in NOT_BUILT}
            until = time.time()
    # Tables are compared without Spark, whose log is whole when it has ended.
    made.server().stop()
    before, after = (fork_catalog.opened(made.settings, name) for name in (BEFORE, AFTER))
    log.info("comparing tables")
    impersonal = contracts.impersonal_columns(*(side.manifest for side in sides))
    rows = made.directory / "rows"
    effect = Comparison(sides[1].manifest, weeks, rows, impersonal, with_samples, sides[0].manifest)
    drift = Comparison(sides[0].manifest, weeks, rows, impersonal)
    # Of an added node there is nothing before, and of a removed one nothing after.
    ids_before = {node.unique_id for node in chosen[0]}
    # It failed, or something that it is made of.
    unbuilt = {name for _, of_run in runs for name, status in of_run.items() if status in NOT_BUILT}
    nodes = [node for node in chosen[1] if node.unique_id in ids_before]
    tables = effect.tables([node for node in nodes if node.unique_id not in unbuilt], before, after)
    costs = cost.costs(events, until, [node.unique_id for node in again], since)
    judged = [node for node in nodes if with_costs or node.unique_id in planned]
    judged = [node for node in judged if node.unique_id not in unbuilt and node.name not in effect.not_compared]
    # The rows of a view cost what reads them; its own stage is that of the question what it reads.
    costly = [node for node in chosen[1] if node.unique_id in costs and node.materialized != "view" and with_costs]
    drifted = [table for table in drift.tables(chosen[0], base, before) if not table.change.is_equal]
    (known, statuses_before), (issues, statuses) = runs
    return replace(
        of_code,
        findings=[
            *_failures(issues, known, of_code.names),
            *_plans(judged, costs, failed, with_costs),
            *of_code.findings,
            *profiles(chosen[1], (sides[0].manifest, sides[1].manifest), (before, after), rows, impersonal),
            *(
                Finding("note", name, f"not run: of {', '.join(behind)}, {OF_THE_MOMENT}")
                for name, behind in sorted(unknown.items())
            ),
        ],
        tables=tables,
        drift=drifted,
        costs={node.name: costs[node.unique_id] for node in costly},
        not_compared={
            **of_code.not_compared,
            **effect.not_compared,
            **{node.name: "its build failed or was skipped" for node in nodes if node.unique_id in unbuilt},
        },
        # An unchanged test passes as before.
        tests={
            of_code.names[name]: (statuses_before[name], status)
            for name, status in sorted(statuses.items())
            if name.startswith(("test.", "unit_test.")) and statuses_before.get(name, status) != status
        },
    )


def _replanned(compared: scope.ReviewScope, sides: tuple[Side, Side]) -> set[str]:
    """Return the nodes of both sides whose plan the change decides on.

    These are changed nodes, and what reads one that is a view or is stored otherwise, through other views, too.
    """
    before, after = (side.manifest.nodes for side in sides)
    reached = {name for name in compared.reached if name in before and name in after}
    planned = {*compared.changed} & reached
    seen_through = {
        name for name in planned if after[name].materialized == "view" or before[name].config != after[name].config
    }
    while seen_through:
        readers = {name for name in reached - planned if not seen_through.isdisjoint(after[name].parents)}
        planned |= readers
        seen_through = {name for name in readers if after[name].materialized == "view"}
    return planned


def _plans(
    nodes: Iterable[Node], costs: Mapping[str, tuple[Cost, Cost]], failed: Collection[str], with_cpu: bool
) -> Iterator[Finding]:
    """Yield what Spark's plans of nodes show, and, if asked, which of them take more CPU seconds."""
    for node in nodes:
        if node.unique_id in failed:
            yield Finding("note", node.name, "its plan is not compared: before the change it cannot be built in full")
        elif node.unique_id in costs:
            before, after = costs[node.unique_id]
            reasons = [*before.worse_plan(after), *(before.more_cpu(after) if with_cpu else ())]
            yield from (Finding("look", node.name, reason) for reason in reasons)


def _has_inputs(catalog: Catalog, nodes: Iterable[Node], manifest: DbtManifest) -> bool:
    """Return whether the tables that nodes read are there: in a lake of sample data nothing is built yet."""
    inputs = {*manifest.ancestors(*(node.unique_id for node in nodes))}
    made = [node for name, node in manifest.nodes.items() if name in inputs and node.resource_type in REFERENCED]
    return all(load_table(catalog, node.table) is not None for node in made if node.materialized != "view")


def _newest_weeks(catalog: Catalog, nodes: Iterable[Node], number: int) -> list[IsoWeek]:
    """Return the newest weeks that exported tables have; the last complete weeks if the tables have no rows."""
    tables = [(node, load_table(catalog, node.table)) for node in nodes]
    weeks = {
        partition["partition"][node.partition_by]
        for node, table in tables
        if table is not None
        for partition in table.inspect.partitions().to_pylist()
    }
    last = IsoWeek.last_complete(datetime.now(UTC))
    return [IsoWeek.parse(week) for week in sorted(weeks)][-number:] or [last.minus(n) for n in reversed(range(number))]


def _built(
    project: Project, names: Sequence[str], tests: Sequence[Node], weeks: Sequence[IsoWeek], is_refreshed: bool
) -> tuple[list[Issue], dict[str, str]]:
    """Build nodes, then test them; return what failed, and by unique id the status of each, of a test with its rows."""
    issues: list[Issue] = []
    answers: dict[str, str] = {}
    refresh = ["--full-refresh"] if is_refreshed else []
    unit_tests = [test.name for test in tests if test.resource_type == "unit_test"]
    data_tests = [test.name for test in tests if test.resource_type == "test"]
    # A test that fails in a build stops what comes after it, and one that reads other models is not run. The weeks of a
    # job would take the place of those that a unit test is of.
    for command, arguments, selected, of_command in (
        (dbt.build_all, ("--exclude-resource-type", "test", *refresh), names, weeks),
        (dbt.test, (), data_tests, weeks),
        (dbt.test, (), unit_tests, ()),
    ):
        if selected:
            issues += command(project, of_command, *arguments, "--select", *selected)
            results = project.results()["results"]
            answers |= {one["unique_id"]: f"{one['status']} {one.get('failures') or ''}".rstrip() for one in results}
    return issues, answers


def _store_views(project: Project, manifest: DbtManifest, nodes: Sequence[Node]) -> Iterator[Issue]:
    """Write the rows of views that are compared to tables of the fork; yield those that cannot be read."""
    views = [node for node in nodes if is_compared_view(node, manifest)]
    with thrift.connect(from_environment(project.env)) as cursor:
        thrift.rows(cursor, f"create namespace if not exists {STORED_VIEWS}")
        # Of the other side.
        for view in views:
            thrift.rows(cursor, f"drop table if exists {STORED_VIEWS}.{view.name}")
        for view in views:
            # Names the node in Spark's event log, as dbt's comments do.
            comment = f"/* {json.dumps({'node_id': view.unique_id})} */"
            store = f"{comment} create table {STORED_VIEWS}.{view.name} using iceberg as select * from {view.table}"
            # Storing also fails for a full disk, or a type that Iceberg lacks: this reads all columns, of any type.
            read = f"select sum(length(cast(struct(*) as string))) from {view.table}"
            error = thrift.error_of(cursor, store) and thrift.error_of(cursor, read)
            if error and not thrift.is_timeout(error) and not thrift.error_of(cursor, "select count(*) from range(2)"):
                # The server answers. The error is not shown, because it may quote a row.
                yield Issue(f"the view {view.name} cannot be read", object=view.unique_id)


def _failures(after: Iterable[Issue], before: Iterable[Issue], names: Mapping[str, str]) -> Iterator[Finding]:
    known = {issue.message for issue in before}
    for issue in after:
        name = names.get(issue.object, issue.object)
        yield Finding("look" if issue.message in known else "breaking", name, issue.message)
