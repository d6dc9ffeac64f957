"""Errors for users: what failed, and the remedy."""

import math
from dataclasses import dataclass
from typing import Literal


class UserError(Exception):
    """Bad input or a missing service. The command line prints it as one line and exits with 1.

    `message` names the thing that is wrong, `remedy` the next step. Neither may hold PII or a secret.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}. {remedy}.")
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, str]]:
        """Return the arguments, because the error passes between processes."""
        return UserError, (self.message, self.remedy)


class DeadlineError(UserError):
    """Something took longer than it may."""

    def __init__(self, what: str, limit: float) -> None:
        super().__init__(
            f"{what} has not ended within {math.ceil(limit)} s", "Find out what it waits for, and run it again"
        )


Kind = Literal["ingest", "verify", "fields", "build", "reconcile", "file"]


@dataclass(frozen=True)
class Issue:
    """What a check finds, in words without data.

    `object` is where: the name of a topic or dataset, or the unique id of a dbt node. `kind` names the check. `week` is
    the label of the one week that it counts for; without it, it counts for every week.
    """

    message: str
    remedy: str = ""
    object: str = ""
    kind: Kind | None = None
    week: str | None = None

    @property
    def model(self) -> str:
        """The name of the model at fault, if it is one."""
        return self.object.rpartition(".")[2]
