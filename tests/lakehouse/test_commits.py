"""A change that other commits come before is done again, so many times."""

import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from lakehouse.commits import Refused, committing, until_committed
from lakehouse.errors import UserError


@pytest.mark.parametrize("refusal", [CommitFailedException("stale"), Refused("stale")])
def test_a_change_is_done_again_from_its_start(refusal: Exception) -> None:
    left = [refusal, refusal]

    def change() -> str:
        if left:
            raise left.pop()
        return "done"

    assert until_committed(change, "It was not changed", "Wait") == "done"


@pytest.mark.parametrize(("told", "declared", "tries"), [(None, "2", 2), (3, "2", 3), (None, "", 5)])
def test_a_change_is_tried_as_often_as_it_is_said(
    monkeypatch: pytest.MonkeyPatch, told: int | None, declared: str, tries: int
) -> None:
    monkeypatch.setenv("LAKEHOUSE_COMMIT_ATTEMPTS", declared)
    done = []

    def change() -> None:
        done.append(1)
        with committing():
            raise CommitFailedException

    with pytest.raises(UserError, match=f"It was not changed, {tries} times in a row"):
        until_committed(change, "It was not changed", "Wait", told)
    assert len(done) == tries


def test_another_error_ends_it_at_once() -> None:
    done = []

    def change() -> None:
        done.append(1)
        raise NoSuchTableError

    with pytest.raises(NoSuchTableError):
        until_committed(change, "It was not changed", "Wait")
    assert len(done) == 1


@pytest.mark.parametrize("wrong", ["0", "-1", "many"])
def test_a_number_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("LAKEHOUSE_COMMIT_ATTEMPTS", wrong)
    with pytest.raises(UserError, match="LAKEHOUSE_COMMIT_ATTEMPTS is"):
        until_committed(lambda: None, "It was not changed", "Wait")
