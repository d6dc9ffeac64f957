"""`lakehouse review`: what a change of the project does, in comparison with the commit that it began at.

Without data: both sides are compiled, and their code and declarations compared. With data: in a fork of the lake the
code before the change builds what the change can reach, then the changed code does, from the same input; the tables of
both are compared. Nothing of production changes but the tags of the fork and the lease that it takes.
"""

import io
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyiceberg.catalog import Catalog

from python_common import private_files
from python_common.catalog.catalog import load_table
from python_common.config.environment import home, read_env_file
from python_common.config.settings import Settings, from_environment
from python_common.errors import UserError
from python_common.locks.lock import locked
from python_common.log import log
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_dbt.compile import COPIED, NotCompiled, cached_manifest, compiled_manifest
from python_dbt.manifest import REFERENCED, DbtManifest, Node
from python_dbt.project import Project
from python_dev.review import contracts, cost, quick, scope
from python_dev.review.build import Build
from python_dev.review.canonical import is_volatile
from python_dev.review.contracts import Finding
from python_dev.review.cost import Cost, Plan
from python_dev.review.report import Review
from python_dev.review.scope import Side
from python_dev.review.tables import Comparison
from python_jobs import fork, fork_catalog

FORK = "review"
BEFORE, AFTER = "before", "after"
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
    a build of both sides in full. A quick review reads the rows in `landed`, and neither needs settings nor does code
    alone. `compiling` gives the project, if it is being compiled already. A change that does not compile is breaking.
    Raises a UserError if the code before it cannot be compiled.
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
                parsed = error.parsed if isinstance(error, NotCompiled) else DbtManifest()
                # dbt's own words, without what came before them.
                reason = " ".join(error.message.split()).rpartition("Encountered an error: ")[2]
                broken = [
                    *contracts.declared_classes(before.manifest, parsed),
                    Finding("breaking", "the changed project", f"does not compile: {reason}"),
                    *_unmade(before.manifest, project),
                ]
                return Review(commit, project.commit() or "unknown", is_static, scope.ReviewScope(), broken, {}, {})
            of_code = _of_code(before, after, commit, project, is_static)
            of_code = replace(of_code, findings=[*of_code.findings, *_not_reviewed(project, commit)])
            if built:
                tests = [of_code.scope.tests(one.manifest) for one in (before, after)]
                return quick.review(of_code, *built, quick.Places(after.manifest, project.directory), tests)
            has_work = any(of_code.scope.tests(one.manifest) for one in (before, after)) or of_code.scope.reached
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
    sources = {**before.manifest.sources, **after.manifest.sources}
    unit_tests = {**before.manifest.unit_tests, **after.manifest.unit_tests}
    checksums = ({name: test.checksum for name, test in side.manifest.unit_tests.items()} for side in (before, after))
    stale = sorted(_of_the_moment(compared, before, after))
    layouts: dict[str, list[str]] = {}
    for name in sorted(compared.built & compared.changed.keys()):
        if compared.changed[name].startswith(scope.CONFIG):
            layouts.setdefault(compared.changed[name], []).append(nodes[name].name)
    exposures = {**before.manifest.exposures, **after.manifest.exposures}.values()
    return Review(
        base=commit,
        change=project.commit() or "unknown",
        is_static=is_static,
        scope=compared,
        findings=[
            *contracts.findings(before.manifest, after.manifest),
            *(
                Finding("look", nodes[name].name, f"test changed: {compared.changed[name]}")
                for name in sorted(compared.own - compared.built)
            ),
            *(
                Finding("look", test.name, f"unit test {'changed' if name in after.manifest.unit_tests else 'removed'}")
                for name in contracts.differing(*checksums)
                if (test := before.manifest.unit_tests.get(name))
            ),
            *(
                Finding("look", name, "changed: it is for all nodes, and what it does to them is not compared")
                for name in contracts.differing(before.settings, after.settings)
            ),
            *(Finding("note", contracts.few(names), reason) for reason, names in layouts.items()),
            *(Finding("note", name, "macro changed, which no node calls") for name in compared.uncalled),
            *(
                Finding("note", nodes[name].name, f"made of what changes, and not compared: {OF_THE_MOMENT}")
                for name in stale
                if name in compared.affected
            ),
        ],
        names={unique_id: node.name for unique_id, node in {**sources, **nodes, **unit_tests}.items()},
        exposures={
            exposure.label or exposure.name: [nodes[name].name for name in exposure.parents if name in compared.reached]
            for exposure in exposures
            if compared.reached & {*exposure.parents}
        },
        sql={
            nodes[name].name: (_compiled(before, name), _compiled(after, name))
            for name in sorted({*compared.own, *compared.added, *compared.removed})
        },
        not_compared={nodes[name].name: OF_THE_MOMENT for name in stale if name in compared.own and not is_static},
    )


def _of_the_moment(compared: scope.ReviewScope, *sides: Side) -> set[str]:
    """Return what differs whose rows depend on when or how tables were built, on any side: two builds make others."""
    nodes = [side.manifest.nodes[name] for side in sides for name in compared.reached & side.manifest.nodes.keys()]
    built = [node for node in nodes if node.resource_type in REFERENCED]
    return {
        node.unique_id for node in built if node.resource_type == "snapshot" or is_volatile(node.compiled_code or "")
    }


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
    stale = _of_the_moment(of_code.scope, *sides)
    before, after = (Build.of(of_code, side, stale) for side in sides)
    events = fork.forks_directory(settings) / FORK / fork.EVENTS
    log.info("forking the lake, without copying data")
    made = fork.create(settings, FORK, timedelta(hours=24), cost.spark_properties(events) if with_costs else None)
    base = fork_catalog.opened(made.settings, fork_catalog.BASE_CATALOG)
    weeks = _newest_weeks(base, [node for node in after.side.manifest.models if node.is_export], number_of_weeks)
    env = {**projects[0].env, **read_env_file(made.env_file)}
    until = 0.0
    for build, project, name in zip((before, after), projects, (BEFORE, AFTER), strict=True):
        log.info(f"{name} the change: building {len(build.nodes)} nodes, and running {len(build.tests)} tests")
        names = [node.name for node in build.nodes]
        selections = [("--full-refresh", "--select", *names)] if name == AFTER or with_costs else []
        if name == BEFORE:
            # The lake is what this code has made: most is unchanged. In a lake of sample data nothing is built yet.
            inputs = [f"+{one.name}" for one in (*build.nodes, *build.tests)]
            selections.insert(0, ("--select", *inputs, *(("--exclude", *names) if with_costs and names else ())))
        run = Project(project.directory, {**env, "DBT_TARGET_PATH": str(made.directory / f"target-{name}")})
        build.run(run, weeks, *selections)
        with thrift.connect(from_environment(run.env)) as cursor:
            build.ask(cursor)
        fork_catalog.remember(made.directory, name)
        until = until or time.time()
    # Tables are compared without Spark, whose log is whole when it has ended.
    made.server().stop()
    log.info("comparing tables")
    impersonal = contracts.impersonal_columns(*(side.manifest for side in sides))
    comparison = Comparison(
        (sides[0].manifest, sides[1].manifest),
        (fork_catalog.opened(made.settings, BEFORE), fork_catalog.opened(made.settings, AFTER)),
        weeks,
        made.directory / "rows",
        impersonal,
        with_samples,
    )
    failed = before.failed | after.failed
    comparison.add(node for node in after.nodes if node.unique_id not in failed)
    costs = cost.costs(events, until) if with_costs else {}
    known = {issue.message for issue in before.issues}
    return replace(
        of_code,
        findings=[
            *(
                Finding("look" if one.message in known else "breaking", of_code.listed([one.object])[0], one.message)
                for one in after.issues
            ),
            *(
                Finding("look", node.name, reason)
                for node in after.nodes
                for reason in _worse(node, before.plans, after.plans, costs)
            ),
            *of_code.findings,
            *comparison.added,
            *(
                Finding("note", name, f"not run: of {', '.join(behind)}, {OF_THE_MOMENT}")
                for name, behind in sorted({**before.unknown, **after.unknown}.items())
            ),
        ],
        tables=comparison.tables,
        # The rows of a view cost what reads them.
        costs={
            node.name: costs[node.unique_id]
            for node in after.nodes
            if node.unique_id in costs and node.materialized != "view"
        },
        not_compared={
            **of_code.not_compared,
            **comparison.not_compared,
            **{name: "its build failed or was skipped" for name in of_code.listed(failed & of_code.scope.built)},
        },
        # An unchanged test passes as before.
        tests={
            of_code.names[name]: (before.answers[name], answer)
            for name, answer in sorted(after.answers.items())
            if name.startswith(("test.", "unit_test.")) and before.answers.get(name, answer) != answer
        },
    )


def _worse(
    node: Node, before: Mapping[str, Plan], after: Mapping[str, Plan], costs: Mapping[str, tuple[Cost, Cost]]
) -> Iterator[str]:
    """Yield what is worse in the plan of a node, and that it takes more CPU seconds."""
    name = node.unique_id
    if name in before and name in after:
        yield from before[name].worse(after[name])
    if name in costs:
        yield from costs[name][0].more_cpu(costs[name][1])


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
