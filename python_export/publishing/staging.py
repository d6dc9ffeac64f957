"""Gives one run at a time a private directory of its own, and clears what dead runs left there."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehouse.errors import UserError
from lakehouse.lock import lock
from lakehouse.private import for_readers

# The staging area of a root that readers may enter, unlike this.
BESIDE_VERSIONS = ".staging"


@contextmanager
def staging(private: Path) -> Iterator[Path]:
    """Yield an empty directory in a target's staging area; it is gone afterwards.

    A second run waits for the first. So whatever is there at the start was left by a run that died, and is removed.

    Raises:
        UserError: the area cannot be written, or a file operation failed, for instance on a full disk.
    """
    try:
        if private.name == BESIDE_VERSIONS and not private.parent.exists():
            private.parent.mkdir(parents=True)
            private.parent.chmod(for_readers(0o777))
        private.mkdir(parents=True, exist_ok=True)
        file = (private / "lock").open("w")
    except OSError as error:
        raise UserError(
            f"{private} cannot be written: {error.strerror}",
            "Correct LAKEHOUSE_EXPORT_ROOT, with an object store LAKEHOUSE_EXPORT_STAGING, or the directory's owner",
        ) from None
    with file:
        lock(file, "export")
        directory = private / uuid.uuid4().hex
        try:
            for left_over in private.iterdir():
                if left_over.is_dir():
                    # Spark may still write there for a run that was killed; the next run removes the rest.
                    shutil.rmtree(left_over, ignore_errors=True)
            directory.mkdir()
            yield directory
        except OSError as error:
            raise stopped(error, private) from None
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def stopped(error: OSError, place: Path) -> UserError:
    """Return what to say of a file operation of an export that failed, at a place if the error does not name it."""
    return UserError(
        f"The export stopped: {error.strerror or error} ({error.filename or place})",
        "Readers see whole versions only; repair that and run the export again",
    )
