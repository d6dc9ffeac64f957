"""One side of a change, as dbt and Spark have it in a fork: what is built, how it is planned, and what tests answer."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from pyhive import hive

from python_common.errors import Issue
from python_common.spark import spark_sql, thrift
from python_common.weeks import IsoWeek
from python_dbt.manifest import REFERENCED, Node
from python_dbt.project import Project
from python_dbt.run import build_all, test
from python_dev.review.cost import Plan, plan
from python_dev.review.report import Review
from python_dev.review.scope import Side
from python_dev.review.tables import STORED_VIEWS, is_compared_view

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
    plans: dict[str, Plan] = field(default_factory=dict)

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
