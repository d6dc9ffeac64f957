"""What a run has found wrong: models/ops/ops_export_weeks.sql decides which datasets an issue withholds."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from python_common.errors import Issue, Kind
from python_common.weeks import IsoWeek
from python_export.datasets.declared import Dataset
from python_export.readiness.decision import TopicRead


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

    `reads` are from before the build, of the topics of the datasets and of their producers. `issues` count for every
    week, those `in_week` for one; `refused` is what the checks of files have found. `checked` are by kind the objects
    whose earlier issues these replace, None for all; `in_every_week` is what is wrong in every week by these and by
    earlier checks. `published` are dataset and week of what has its one version. `builds` are the ids of the run's
    builds: without any, tables may be of an earlier one. `has_views` is whether the run has made the views that decide.
    """

    reads: dict[str, TopicRead] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    in_week: list[tuple[IsoWeek, Issue]] = field(default_factory=list)
    refused: list[tuple[IsoWeek, Issue]] = field(default_factory=list)
    checked: dict[Kind, Collection[str] | None] = field(default_factory=dict)
    in_every_week: set[str] = field(default_factory=set)
    published: Collection[tuple[str, str]] = ()
    builds: set[str] = field(default_factory=set)
    has_views: bool = False

    def add(self, issues: Iterable[Issue], exports: Collection[str], weeks: Iterable[IsoWeek]) -> None:
        """Add what failed in a build of some weeks: in an export model it counts for these weeks alone."""
        for issue in issues:
            if issue.model in exports:
                self.in_week += [(week, issue) for week in weeks]
            else:
                self.issues.append(issue)

    def found(self) -> list[tuple[IsoWeek | None, Issue]]:
        """Return the issues, each with its week."""
        return [*((None, issue) for issue in self.issues), *self.in_week, *self.refused]

    def dead_letters(self, dataset: Dataset, week: IsoWeek) -> int:
        """Return how many records that are stamped in a week, of the topics of a dataset, could not be decoded."""
        return sum(read.dead_letters(week) for topic in dataset.topics if (read := self.reads.get(topic.name)))

    def without_dataset(self, datasets: Iterable[Dataset]) -> list[str]:
        """Return the issues that withhold nothing, because no dataset comes from their objects."""
        objects = frozenset().union(*(dataset.lineage for dataset in datasets))
        issues = [*self.issues, *(issue for _, issue in self.in_week)]
        withholding = {issue.message for issue in issues if issue.object in objects}
        return [reason for reason in dict.fromkeys(issue.message for issue in issues) if reason not in withholding]
