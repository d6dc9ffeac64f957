"""What is not published for a week and why: a fault costs the datasets that come from its place, and no other."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakehouse.errors import Fault
from lakehouse.weeks import IsoWeek
from python_export.datasets.declared import Dataset


@dataclass(frozen=True)
class Withheld:
    """A dataset that is not published for a week, and why, in words without data."""

    dataset: str
    week: str
    reason: str

    def __str__(self) -> str:
        return f"{self.dataset} {self.week} is withheld: {self.reason}"


def withholds(fault: Fault, dataset: Dataset) -> bool:
    """Tell whether a dataset comes from where a fault is."""
    return fault.place in dataset.lineage and (dataset.suppressed is not None or not fault.of_suppressed)


def withhold(
    datasets: Iterable[Dataset], faults: Iterable[Fault], week: IsoWeek
) -> tuple[list[Dataset], list[Withheld]]:
    """Return the datasets that no fault touches, and those that one does with all their reasons."""
    kept, withheld = [], []
    faults = list(faults)
    for dataset in datasets:
        reasons = dict.fromkeys(fault.reason for fault in faults if withholds(fault, dataset))
        if reasons:
            withheld.append(Withheld(dataset.name, str(week), "; ".join(reasons)))
        else:
            kept.append(dataset)
    return kept, withheld


def ready(
    due: Mapping[IsoWeek, Sequence[str]], datasets: Mapping[str, Dataset], faults: Collection[Fault]
) -> tuple[dict[IsoWeek, list[str]], list[str]]:
    """Return due weeks without the datasets that a fault withholds in all of them, and a warning for each of these."""
    kept: dict[IsoWeek, list[str]] = {}
    waiting: dict[tuple[str, str], list[IsoWeek]] = {}
    for week, names in due.items():
        chosen, all_withheld = withhold([datasets[name] for name in names], faults, week)
        if chosen:
            kept[week] = [dataset.name for dataset in chosen]
        for withheld in all_withheld:
            waiting.setdefault((withheld.dataset, withheld.reason), []).append(week)
    return kept, [
        f"{len(weeks)} due weeks of {name}, the first {min(weeks)}, are not published yet: {reason}"
        for (name, reason), weeks in waiting.items()
    ]


def without_dataset(datasets: Iterable[Dataset], faults: Iterable[Fault]) -> list[str]:
    """Return the reasons that withhold nothing, because no dataset comes from their place."""
    places = frozenset().union(*(dataset.lineage for dataset in datasets))
    withholding = {fault.reason for fault in faults if fault.place in places}
    return [reason for reason in dict.fromkeys(fault.reason for fault in faults) if reason not in withholding]
