"""What is not published for a week and why: an issue withholds the datasets that come from its object, and no other."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from python_common.errors import Issue
from python_common.weeks import IsoWeek
from python_export.datasets.declared import Dataset, Topic
from python_export.readiness import completeness
from python_export.readiness.completeness import TopicProgress


@dataclass(frozen=True)
class Withheld:
    """A dataset that is not published for a week, and why, in words without data."""

    dataset: str
    week: str
    reason: str

    def __str__(self) -> str:
        return f"{self.dataset} {self.week} is withheld: {self.reason}"


@dataclass
class Readiness:
    """What is known of the topics and of the build when files are about to be made.

    `states` are from before the build, of the topics of `datasets` and of their producers. `issues` count for every
    week, those `in_week` for one, as do those of `incomplete` topics; `warnings` withhold nothing. `published` are
    dataset and week of what has its one version. `builds` are the ids of the run's builds: without any, tables may be
    of an earlier one.
    """

    states: Mapping[Topic, TopicProgress | Issue] = field(default_factory=dict)
    datasets: Collection[Dataset] = ()
    issues: list[Issue] = field(default_factory=list)
    in_week: dict[IsoWeek, list[Issue]] = field(default_factory=dict)
    incomplete: dict[IsoWeek, list[Issue]] = field(default_factory=dict)
    warnings: dict[IsoWeek, list[Issue]] = field(default_factory=dict)
    published: Collection[tuple[str, str]] = ()
    builds: set[str] = field(default_factory=set)

    def of(self, week: IsoWeek) -> list[Issue]:
        """Return the issues that count for a week."""
        return [*self.issues, *self.incomplete.get(week, []), *self.in_week.get(week, [])]

    def add(self, issues: Iterable[Issue], exports: Collection[str], weeks: Iterable[IsoWeek]) -> None:
        """Add what failed in a build of some weeks: in an export model it counts for these weeks alone."""
        for issue in issues:
            if issue.model in exports:
                for week in weeks:
                    self.in_week.setdefault(week, []).append(issue)
            else:
                self.issues.append(issue)

    def check(self, week: IsoWeek) -> list[Issue]:
        """Check whether the topics of a week are complete, and return what is not."""
        self.incomplete[week], self.warnings[week] = completeness.check(self.states, self.datasets, week)
        return self.incomplete[week]

    def found(self) -> list[tuple[IsoWeek | None, Issue]]:
        """Return the issues with their week, but for those of topics, which follow from their states."""
        in_week = [(week, issue) for week, issues in self.in_week.items() for issue in issues]
        return [*((None, issue) for issue in self.issues), *in_week]


def withholds(issue: Issue, dataset: Dataset) -> bool:
    """Return whether an issue withholds a dataset: whether that comes from its object."""
    return issue.object in dataset.lineage and (dataset.suppressed is not None or not issue.of_suppressed)


def withhold(
    datasets: Iterable[Dataset], issues: Iterable[Issue], week: IsoWeek
) -> tuple[list[Dataset], list[Withheld]]:
    """Return the datasets without an issue, and the withheld ones, each with all its reasons."""
    accepted, withheld = [], []
    issues = list(issues)
    for dataset in datasets:
        reasons = dict.fromkeys(issue.message for issue in issues if withholds(issue, dataset))
        if reasons:
            withheld.append(Withheld(dataset.name, str(week), "; ".join(reasons)))
        else:
            accepted.append(dataset)
    return accepted, withheld


def ready(
    due: Mapping[IsoWeek, Sequence[str]], datasets: Mapping[str, Dataset], issues: Collection[Issue]
) -> tuple[dict[IsoWeek, list[str]], list[str]]:
    """Return due weeks without the datasets that an issue withholds in all of them, and a warning for each of these."""
    by_week: dict[IsoWeek, list[str]] = {}
    waiting: dict[tuple[str, str], list[IsoWeek]] = {}
    for week, names in due.items():
        chosen, all_withheld = withhold([datasets[name] for name in names], issues, week)
        if chosen:
            by_week[week] = [dataset.name for dataset in chosen]
        for withheld in all_withheld:
            waiting.setdefault((withheld.dataset, withheld.reason), []).append(week)
    return by_week, [
        f"{len(weeks)} due weeks of {name}, the first {min(weeks)}, are not published yet: {reason}"
        for (name, reason), weeks in waiting.items()
    ]


def without_dataset(datasets: Iterable[Dataset], issues: Iterable[Issue]) -> list[str]:
    """Return the reasons that withhold nothing, because no dataset comes from their objects."""
    objects = frozenset().union(*(dataset.lineage for dataset in datasets))
    withholding = {issue.message for issue in issues if issue.object in objects}
    return [reason for reason in dict.fromkeys(issue.message for issue in issues) if reason not in withholding]
