"""Fetches the jars that a lock file names, without Maven: `python -m python_common.spark.jars fetch`.

pom.xml declares the artifacts, with a profile per folder of jars. `make lock-jars` has Maven copy them, with their
transitive dependencies, and writes jars.lock: the SHA-256 of the pom, and of every file with its folder and its path in
a Maven repository.
"""

import hashlib
import os
import shutil
import sys
import urllib.request
import xml.etree.ElementTree as ET
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from python_common.errors import UserError
from python_common.log import run_module
from python_common.spark import java

CENTRAL = "https://repo.maven.apache.org/maven2"
POM = Path(__file__).with_name("pom.xml")
DOWNLOADS_AT_ONCE = 8
ATTEMPTS = 5
WAIT = wait_exponential(max=8)
TIMEOUT_SECONDS = 60
# Maven puts files of its own beside them.
ARTIFACTS = {".jar", ".gz", ".zip"}


def read_lock(pom: Path) -> dict[PurePosixPath, str]:
    """Return the SHA-256 of every file of a pom's lock, by folder and path in a Maven repository.

    Raises:
        UserError: the pom has changed since the lock was written.
    """
    lines = (line.split() for line in pom.with_name("jars.lock").read_text().splitlines())
    locked = {PurePosixPath(path): sha256 for sha256, path in lines}
    if locked.pop(PurePosixPath(pom.name), None) != _pom_sha256(pom):
        raise UserError(f"{pom} and its jars.lock disagree", f"Run `make lock-jars POM={pom}` (needs Maven)")
    return locked


def write_lock(pom: Path, files: Path) -> None:
    """Write the lock of a pom, for the files that Maven has copied: a folder per profile, in a repository's layout."""
    lines = [f"{_pom_sha256(pom)}  {pom.name}\n"]
    for path in sorted(files.rglob("*")):
        if path.suffix in ARTIFACTS:
            lines.append(f"{_sha256(path)}  {path.relative_to(files).as_posix()}\n")
    pom.with_name("jars.lock").write_text("".join(lines))


def fetch(pom: Path, target: Path) -> None:
    """Download the files of a pom's lock into folders of `target`, and delete other jars there.

    Files with the right hash stay.

    Raises:
        UserError: pom and lock disagree, or a file cannot be fetched.
    """
    locked = read_lock(pom)
    for folder in {file.parts[0] for file in locked}:
        (target / folder).mkdir(parents=True, exist_ok=True)
        names = {file.name for file in locked if file.parts[0] == folder}
        if all(name.endswith(".jar") for name in names):
            for jar in (target / folder).glob("*.jar"):
                if jar.name not in names:
                    jar.unlink()
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        list(pool.map(lambda entry: _provide(entry[0], entry[1], target), locked.items()))


def _provide(file: PurePosixPath, sha256: str, target: Path) -> None:
    """Have a file in its folder: a jar as it is, an archive unpacked."""
    folder = target / file.parts[0]
    if file.suffix == ".jar":
        _download(file, sha256, folder / file.name)
        return
    unpacked = folder / ".unpacked"
    if unpacked.is_file() and unpacked.read_text() == sha256:
        return
    archive = target / file.name
    _download(file, sha256, archive)
    shutil.rmtree(folder)
    if file.suffix == ".zip":
        # shutil leaves out files with two dots in their name, as some of Trino have.
        with zipfile.ZipFile(archive) as files:
            files.extractall(folder)
    else:
        shutil.unpack_archive(archive, folder)
    archive.unlink()
    unpacked.write_text(sha256)


def _download(file: PurePosixPath, sha256: str, path: Path) -> None:
    """Download a file to `path` unless it has this hash already."""
    if path.is_file() and _sha256(path) == sha256:
        return
    repository = os.environ.get("MAVEN_REPOSITORY_URL") or CENTRAL
    url = "/".join((repository.rstrip("/"), *file.parts[1:]))
    retrying = Retrying(
        stop=stop_after_attempt(ATTEMPTS), wait=WAIT, retry=retry_if_exception(_is_transient), reraise=True
    )
    try:
        retrying(_download_once, url, sha256, path)
    except (OSError, HTTPException, ValueError) as error:  # the address may be malformed
        raise UserError(
            f"{url} cannot be fetched: {error}",
            "Try again, or name a mirror of Maven Central in MAVEN_REPOSITORY_URL",
        ) from None


def _download_once(url: str, sha256: str, path: Path) -> None:
    part = path.with_name(path.name + ".part")
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response, part.open("wb") as file:
        shutil.copyfileobj(response, file)
    if _sha256(part) != sha256:
        part.unlink()
        # Some proxies end a download early, so this can pass too.
        raise OSError("it differs from jars.lock in its SHA-256")
    part.replace(path)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, HTTPError):
        return error.code not in {401, 403, 404}
    return isinstance(error, OSError | HTTPException)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pom_sha256(pom: Path) -> str:
    """Return the SHA-256 of a pom without its comments and indentation."""
    return hashlib.sha256(ET.canonicalize(from_file=str(pom), strip_text=True).encode()).hexdigest()


def main(command: str, pom: Path = POM, directory: Path | None = None) -> None:
    """Run one of the commands fetch, check and lock."""
    if command == "fetch":
        java.executable()  # jars are of no use without
        fetch(pom, directory or pom.with_name("target"))
    elif command == "check":
        read_lock(pom)
    elif command == "lock" and directory:
        write_lock(pom, directory)
    else:
        raise UserError(f"There is no command {command}", "Choose fetch, check or lock")


if __name__ == "__main__":
    run_module(main, sys.argv[1], *map(Path, sys.argv[2:]))
