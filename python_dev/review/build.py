"""Both sides of a change in a fork of the lake: what is built, how it is planned, what tests answer, what differs."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pyhive import hive
from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_table
from python_common.config.environment import read_env_file
from python_common.config.settings import Settings, from_environment
from python_common.errors import Issue
from python_common.log import log
from python_common.spark import spark_sql, thrift
from python_common.weeks import IsoWeek
from python_dbt.manifest import REFERENCED, Node
from python_dbt.project import Project
from python_dbt.run import build_all, test
from python_dev.review import contracts, cost, scope
from python_dev.review.contracts import Finding
from python_dev.review.cost import Cost, QueryPlan, plan
from python_dev.review.report import Review
from python_dev.review.scope import Side
from python_dev.review.table_diff import SIDES
from python_dev.review.tables import STORED_VIEWS, Comparison, is_compared_view
from python_jobs import fork, fork_catalog

FORK = "review"
BEFORE, AFTER = SIDES
# What dbt reports of a node.
NOT_BUILT = ("error", "skipped")


@dataclass
class Build:
    """One side of the change as it is built in the fork.

    `nodes` are what the change can reach and whose rows can be compared, by name; `tests` those that see the change,
    `unknown` the names of others, with the nodes behind them that no review builds. `answers` have the status of each
    node and test by unique id, and `plans` those of nodes.
    """

    side: Side
    nodes: list[Node]
    tests: list[Node] = field(default_factory=list)
    unknown: dict[str, list[str]] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    plans: dict[str, QueryPlan] = field(default_factory=dict)

    @classmethod
    def of(cls, of_code: Review, side: Side, stale: Set[str]) -> "Build":
        """Choose what is built and tested, without what is `stale`."""
        nodes = [side.manifest.nodes[name] for name in of_code.scope.reached - stale & side.manifest.nodes.keys()]
        build = cls(side, sorted((one for one in nodes if one.resource_type in REFERENCED), key=lambda one: one.name))
        for one in of_code.scope.tests(side.manifest):
            behind = stale & {*side.manifest.ancestors(one.unique_id)}
            if one.resource_type == "test" and behind:
                build.unknown[one.name] = sorted(of_code.listed(behind))
            else:
                build.tests.append(one)
        return build

    @property
    def failed(self) -> set[str]:
        """What could not be built, or is made of that."""
        return {name for name, status in self.answers.items() if status in NOT_BUILT}

    def run(self, project: Project, weeks: Sequence[IsoWeek], *selections: Sequence[str]) -> None:
        """Build what is selected, then test it.

        A test that fails in a build stops what comes after it, and one that reads other models is not run. The weeks of
        a job would take the place of those that a unit test is of.
        """
        data_tests, unit_tests = (
            [test.name for test in self.tests if test.resource_type == kind] for kind in ("test", "unit_test")
        )
        for command, of_command, arguments in (
            *((build_all, weeks, ("--exclude-resource-type", "test", *selection)) for selection in selections),
            (test, weeks, ("--select", *data_tests)),
            (test, (), ("--select", *unit_tests)),
        ):
            if arguments[-1] != "--select":
                self.issues += command(project, of_command, *arguments)
                results = project.results()["results"]
                answers = {one["unique_id"]: f"{one['status']} {one.get('failures') or ''}" for one in results}
                self.answers |= {name: answer.rstrip() for name, answer in answers.items()}

    def ask(self, cursor: hive.Cursor) -> None:
        """Ask for the plans of nodes, and write the rows of views that are compared to tables of the fork."""
        views = [node for node in self.nodes if is_compared_view(node, self.side.manifest)]
        thrift.rows(cursor, f"create namespace if not exists {STORED_VIEWS}")
        # Of the other side.
        for view in views:
            thrift.rows(cursor, f"drop table if exists {STORED_VIEWS}.{view.name}")
        for view in views:
            store = f"create table {STORED_VIEWS}.{view.name} using iceberg as select * from {view.table}"
            # Storing also fails for a full disk, or a type that Iceberg lacks: this reads all columns, of any type.
            read = f"select sum(length(cast(struct(*) as string))) from {view.table}"
            error = thrift.error_of(cursor, store) and thrift.error_of(cursor, read)
            if error and not thrift.is_timeout(error) and not thrift.error_of(cursor, "select count(*) from range(2)"):
                # The server answers. The error is not shown, because it may quote a row.
                self.issues.append(Issue(f"the view {view.name} cannot be read", object=view.unique_id))
        for node in self.nodes:
            sql = spark_sql.literal(node.compiled_code or "")
            for (answer,) in thrift.rows(cursor, f"select lakehouse_plan({sql})"):
                # SQL that a run alone can complete has no plan.
                self.plans |= {node.unique_id: made} if (made := plan(answer)) else {}


def drop(settings: Settings) -> None:
    """Drop the fork of a review, if it is there."""
    fork.drop(settings, FORK, missing_ok=True)


def of_data(
    of_code: Review,
    settings: Settings,
    projects: tuple[Project, Project],
    sides: tuple[Side, Side],
    number_of_weeks: int,
    with_samples: bool,
    with_costs: bool,
) -> Review:
    """Build both sides in a fork and compare their tables."""
    stale = scope.of_the_moment(of_code.scope, *sides)
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
                Finding("note", name, f"not run: of {', '.join(behind)}, {scope.TIME_DEPENDENT}")
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
    node: Node, before: Mapping[str, QueryPlan], after: Mapping[str, QueryPlan], costs: Mapping[str, tuple[Cost, Cost]]
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
