"""What an export run did, as its summary, notifications and report need it."""

from dataclasses import dataclass, field, replace

from python_common.errors import Issue, UserError
from python_common.weeks import IsoWeek
from python_export.publishing.manifest import Manifest
from python_export.publishing.publish import Published


@dataclass
class Exported:
    """What a run did so far: versions that are public, what is withheld, warnings; all without data.

    `withheld` are issues of datasets in one week. `week` is the newest that it is for. `has_issues` also if no dataset
    comes from what failed. `undelivered` are the errors of notifications, `step` is what the run does now, for an
    alert. `current` is what the index lists. `is_alone` once it holds lock and lease: before that, what is new in the
    export root is another run's to announce. `held_weeks` counts the weeks of datasets that are withheld for review.
    """

    week: IsoWeek
    published: list[Published] = field(default_factory=list)
    withheld: list[Issue] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    has_issues: bool = False
    undelivered: list[UserError] = field(default_factory=list)
    step: str = ""
    is_alone: bool = False
    held_weeks: int = 0
    current: list[Manifest] = field(default_factory=list)

    @property
    def is_incomplete(self) -> bool:
        """Whether something failed or is withheld."""
        return bool(self.withheld) or self.has_issues

    def notices(self) -> list[Issue]:
        """Return what readers should know besides the versions, a line each; a warning has no object."""
        return [
            *(
                replace(issue, message=f"{issue.object} {issue.week} is withheld: {issue.message}")
                for issue in self.withheld
            ),
            *(Issue(f"warning: {text}", week=str(self.week)) for text in self.warnings),
        ]

    def weeks(self) -> list[str]:
        """Return the weeks of which there is something new, and the newest."""
        new = {version.manifest.week for version in self.published if not version.unchanged}
        return sorted({str(self.week), *new, *(issue.week for issue in self.withheld if issue.week)})
