"""Changes of a table that another process's commit can come before: refused then, and done again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from lakehouse.environment import environment
from lakehouse.errors import UserError
from lakehouse.variables import Count, Variables, variable

Result = TypeVar("Result")


class Refused(Exception):
    """Nothing was committed, usually because another commit came first. Plan again."""


class Attempts(Variables):
    """How often a change is tried."""

    commit: Count = variable(
        "LAKEHOUSE_COMMIT_ATTEMPTS",
        "how often a change of a table is tried, and a batch planned, that the commits of others come before",
        "5",
        read_by="all",
    )


@contextmanager
def committing() -> Iterator[None]:
    """Raise Refused where PyIceberg refuses a commit."""
    try:
        yield
    except (CommitFailedException, TableAlreadyExistsError):
        raise Refused("another process changed the table") from None


def until_committed(change: Callable[[], Result], failed: str, remedy: str, attempts: int | None = None) -> Result:
    """Return what a change returns, done again from its start as often as it is refused, without a pause.

    Raises:
        UserError: others came first every time, LAKEHOUSE_COMMIT_ATTEMPTS unless told: `failed`, so many times.
    """
    attempts = attempts or Attempts.of(environment()).commit
    retrying = Retrying(stop=stop_after_attempt(attempts), retry=retry_if_exception_type(Refused), reraise=True)
    try:
        return retrying(committing()(change))
    except Refused:
        raise UserError(f"{failed}, {attempts} times in a row", remedy) from None
