"""What is known of the topics and of the build when files are about to be made."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from lakehouse.errors import Fault
from lakehouse.weeks import IsoWeek
from python_export.datasets import completeness
from python_export.datasets.completeness import TopicState
from python_export.datasets.declared import Dataset, Topic


@dataclass
class Findings:
    """What is known of the topics and of the build when files are about to be made.

    `states` are from before the build, of the topics of `datasets` and of their producers; each fault withholds the
    datasets that come from its place, in every week or, of `in_week`, in one. `warnings` withhold nothing. `published`
    are dataset and week of what has its one version. `builds` are the ids of the run's own builds: without any, tables
    may be of an earlier one.
    """

    states: Mapping[Topic, TopicState | Fault] = field(default_factory=dict)
    datasets: Collection[Dataset] = ()
    faults: list[Fault] = field(default_factory=list)
    in_week: dict[IsoWeek, list[Fault]] = field(default_factory=dict)
    warnings: dict[IsoWeek, list[Fault]] = field(default_factory=dict)
    published: Collection[tuple[str, str]] = ()
    builds: set[str] = field(default_factory=set)

    def of(self, week: IsoWeek) -> list[Fault]:
        """Return the faults that count for a week."""
        return [*self.faults, *self.in_week.get(week, [])]

    def add(self, found: Iterable[Fault], exports: Collection[str], weeks: Iterable[IsoWeek]) -> None:
        """Add what failed in a build of some weeks: of an export model it speaks of these weeks alone."""
        for fault in found:
            if is_of(fault, exports):
                for week in weeks:
                    self.in_week.setdefault(week, []).append(fault)
            else:
                self.faults.append(fault)

    def judge(self, grace: timedelta, week: IsoWeek) -> list[Fault]:
        """Look for topics of which a week is incomplete, add what is found, and return it."""
        found, self.warnings[week] = completeness.check(self.states, self.datasets, week, grace)
        self.in_week.setdefault(week, []).extend(found)
        return found


def is_of(fault: Fault, models: Collection[str]) -> bool:
    """Tell whether a fault is in one of some models, by their names."""
    return fault.place.rpartition(".")[2] in models
