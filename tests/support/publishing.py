"""For the tests of faults: a publication, a thread that reads all the while, and versions of releases before 0.7."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from threading import Event

from python_common.config.settings import Settings
from python_export.publishing.target import Target, open_target
from tests.support.versions import publish_content


def unlock(directory: Path) -> None:
    """Let a test change what is published: a version cannot be written."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)


def lay_out_as_before(target: Target, version: str) -> None:
    """Put the files of a version beside its manifest, as releases before 0.7 did in directories."""
    directory = Path(target.address(version))
    unlock(directory)
    [folder] = directory.glob("lakehouse-*")
    for file in folder.iterdir():
        file.chmod(0o444)
        file.rename(directory / file.name)
    folder.rmdir()
    manifest = directory / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f"{folder.name}/", ""))
    manifest.chmod(0o444)
    directory.chmod(0o555)


def leave_changes(target: Target, version: str) -> None:
    """Put changes.csv beside the file of a version, as releases before 0.7 did."""
    file = PurePosixPath(version, json.loads(target.read(f"{version}/manifest.json"))["file"])
    target.put(str(file.with_name("changes.csv")), b"change,note,changed_columns\nremoved,a,\n")


def publish(settings: Settings, content: str) -> None:
    publish_content(open_target(settings), content)


@contextmanager
def reading(target: Target) -> Iterator[tuple[dict[str, str], set[str]]]:
    """Read by the reader's rule all the while; yield the SHA-256 of every version that is seen, and what is wrong."""
    seen, wrong, stop = dict[str, str](), set[str](), Event()
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(_read, target, stop, seen, wrong)
        try:
            yield seen, wrong
        finally:
            stop.set()
        reader.result()


def _read(target: Target, stop: Event, seen: dict[str, str], wrong: set[str]) -> None:
    is_last = False
    while not is_last:
        # Without a pause the other threads would get no time.
        is_last = stop.wait(0.005)
        # What is listed is what has a manifest; what the pointer names is there.
        listed = [f"{path}/manifest.json" for path in target.versions("events/")]
        with suppress(FileNotFoundError):
            listed.append(f"events/{json.loads(target.read('events/latest.json'))['manifest']}")
        for path in listed:
            try:
                manifest = json.loads(target.read(path))
                content = target.read(f"{path.rpartition('/')[0]}/{manifest['file']}")
            except (FileNotFoundError, ValueError) as error:
                wrong.add(f"{path}: {type(error).__name__}")
                continue
            sha256 = hashlib.sha256(content).hexdigest()
            if sha256 != manifest["sha256"] or seen.setdefault(path, sha256) != sha256:
                wrong.add(f"{path}: another content")
