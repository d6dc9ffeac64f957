"""Fetches the jars that a lock file names, without Maven: `python -m python_common.spark.jars fetch`.

pom.xml declares the artifacts, with a profile per folder of jars. jars.lock, made from it, lists every file and its
transitive dependencies with their SHA-256. Only the standard library is used.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from python_common.errors import UserError
from python_common.log import run_module

CENTRAL = "https://repo.maven.apache.org/maven2"
POM = Path(__file__).with_name("pom.xml")
MAVEN = {"pom": "http://maven.apache.org/POM/4.0.0"}
AT_ONCE = 8
ATTEMPTS = 5
TIMEOUT_SECONDS = 60
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, order=True)
class Artifact:
    """A file of a Maven repository, and its folder."""

    folder: str
    group: str
    name: str
    version: str
    type: str = "jar"
    classifier: str = ""

    def __str__(self) -> str:
        coordinates = (self.group, self.name, self.version, self.type, self.classifier)
        return ":".join(coordinates if self.classifier else coordinates[:4])

    @property
    def file_name(self) -> str:
        """The file's name in a Maven repository."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.type}"

    @property
    def path(self) -> str:
        """The file's path in a Maven repository."""
        return "/".join([*self.group.split("."), self.name, self.version, self.file_name])

    @property
    def is_archive(self) -> bool:
        """Whether the file is unpacked into its folder."""
        return self.type in {"tar.gz", "zip"}


def read_pom(pom: Path) -> tuple[set[Artifact], set[str]]:
    """Return the artifacts of a pom, and its folders without transitive dependencies. A profile is a folder."""
    project = ET.parse(pom).getroot()
    properties = {
        element.tag.partition("}")[2]: element.text or "" for element in project.findall("pom:properties/*", MAVEN)
    }

    def text(element: ET.Element, name: str, default: str = "") -> str:
        value = element.findtext(f"pom:{name}", default, MAVEN)
        for key, meaning in properties.items():
            value = value.replace(f"${{{key}}}", meaning)
        return value

    artifacts, alone = set(), set()
    for profile in project.findall("pom:profiles/pom:profile", MAVEN):
        folder = text(profile, "id")
        if profile.findtext("pom:properties/pom:excludeTransitive", "", MAVEN) == "true":
            alone.add(folder)
        for dependency in profile.findall("pom:dependencies/pom:dependency", MAVEN):
            group, name, version = (text(dependency, tag) for tag in ("groupId", "artifactId", "version"))
            artifacts.add(
                Artifact(folder, group, name, version, text(dependency, "type", "jar"), text(dependency, "classifier"))
            )
    return artifacts, alone


def read_lock(lock: Path) -> dict[Artifact, str]:
    """Return the SHA-256 of every file of a lock: lines of folder, coordinates and hash."""
    locked = {}
    for line in lock.read_text().splitlines():
        folder, coordinates, sha256 = line.split()
        locked[Artifact(folder, *coordinates.split(":"))] = sha256
    return locked


def repository() -> str:
    """Return where to fetch from: MAVEN_REPOSITORY_URL, else the mirror in the user's Maven settings, else Central."""
    return (os.environ.get("MAVEN_REPOSITORY_URL") or _mirror() or CENTRAL).rstrip("/")


def _mirror() -> str | None:
    settings = Path.home() / ".m2" / "settings.xml"
    if not settings.is_file():
        return None
    for mirror in ET.parse(settings).iterfind("{*}mirrors/{*}mirror"):
        of = {word.strip() for word in mirror.findtext("{*}mirrorOf", "").split(",")}
        if of & {"*", "external:*", "central"} and "!central" not in of:
            return mirror.findtext("{*}url")
    return None


def fetch(pom: Path, target: Path) -> None:
    """Download the files of a pom's lock into folders of `target`, and delete other jars there.

    Files with the right hash stay; a partial download is continued.

    Raises:
        UserError: pom and lock disagree, or a file cannot be fetched.
    """
    require_agreement(pom)
    locked = read_lock(pom.with_name("jars.lock"))
    for folder in {artifact.folder for artifact in locked}:
        (target / folder).mkdir(parents=True, exist_ok=True)
        expected = {artifact.file_name for artifact in locked if artifact.folder == folder}
        if not any(artifact.is_archive for artifact in locked if artifact.folder == folder):
            for jar in (target / folder).glob("*.jar"):
                if jar.name not in expected:
                    jar.unlink()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda entry: _provide(entry[0], entry[1], target), locked.items()))


def _provide(artifact: Artifact, sha256: str, target: Path) -> None:
    folder = target / artifact.folder
    if not artifact.is_archive:
        _download(artifact, sha256, folder / artifact.file_name)
        return
    unpacked = folder / ".unpacked"
    if unpacked.is_file() and unpacked.read_text() == sha256:
        return
    archive = target / artifact.file_name
    _download(artifact, sha256, archive)
    shutil.rmtree(folder)
    if artifact.type == "zip":
        # shutil leaves out files with two dots in their name, as some of Trino have.
        with zipfile.ZipFile(archive) as files:
            files.extractall(folder)
    else:
        shutil.unpack_archive(archive, folder)
    archive.unlink()
    unpacked.write_text(sha256)


def _download(artifact: Artifact, sha256: str | None, path: Path) -> None:
    """Download a file to `path` unless it has this hash already."""
    if sha256 and path.is_file() and _sha256(path) == sha256:
        return
    part = path.with_name(path.name + ".part")
    url = f"{repository()}/{artifact.path}"
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(2**attempt / 2)
        try:
            _continue(url, part)
        except (OSError, HTTPException, ValueError) as error:  # the address may be malformed
            issue = f"{artifact} cannot be fetched from {url}: {error}"
            if isinstance(error, urllib.error.HTTPError) and error.code in {401, 403, 404}:
                break
            continue
        if sha256 is None or _sha256(part) == sha256:
            part.replace(path)
            return
        part.unlink()
        issue = f"{url} differs from jars.lock in its SHA-256"
    raise UserError(issue, "Try again, or name a mirror of Maven Central in MAVEN_REPOSITORY_URL")


def _continue(url: str, part: Path) -> None:
    """Continue a partial download."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        # Range not satisfiable: the file is complete or too long, which its hash decides.
        if error.code == 416:
            return
        raise
    with response, part.open("ab" if response.status == 206 else "wb") as file:
        shutil.copyfileobj(response, file, CHUNK_BYTES)
        length = response.headers.get("Content-Length")
        if length and file.tell() < int(length):
            raise OSError("the connection ended early")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_lock(pom: Path) -> None:
    """Write the lock of a pom. Maven resolves transitive dependencies; the files are downloaded to be hashed."""
    wanted, alone = read_pom(pom)
    artifacts = {artifact for artifact in wanted if artifact.folder in alone}
    for folder in {artifact.folder for artifact in wanted} - alone:
        artifacts |= _resolved(pom, folder)

    def entry(artifact: Artifact) -> str:
        path = Path(directory, f"{artifact.folder}-{artifact.file_name}")
        _download(artifact, None, path)
        return f"{artifact.folder} {artifact} {_sha256(path)}\n"

    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(AT_ONCE) as pool:
        lines = list(pool.map(entry, sorted(artifacts)))
    pom.with_name("jars.lock").write_text("".join(lines))


def _resolved(pom: Path, folder: str) -> set[Artifact]:
    with tempfile.NamedTemporaryFile("r", suffix=".txt") as listed:
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), "--activate-profiles", folder]
        finished = subprocess.run(
            [*command, "dependency:list", "-DincludeScope=runtime", f"-DoutputFile={listed.name}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            raise UserError(f"Maven cannot resolve {pom}:\n{finished.stdout}", "Correct the pom")
        artifacts = set()
        # Lines are group:name:type[:classifier]:version:scope, some with a remark.
        for words in (line.split() for line in listed.read().splitlines()):
            if words and words[0].count(":") >= 4:
                group, name, kind, *classifier, version, _ = words[0].split(":")
                artifacts.add(Artifact(folder, group, name, version, kind, *classifier))
        return artifacts


def require_agreement(pom: Path) -> None:
    """Raise a UserError, with a line for each difference, unless the lock agrees with its pom."""
    wanted, alone = read_pom(pom)
    locked = set(read_lock(pom.with_name("jars.lock")))
    missing = [f"{artifact} ({artifact.folder}) is not in jars.lock" for artifact in sorted(wanted - locked)]
    # In the other folders the lock also has transitive dependencies.
    surplus = [
        f"{artifact} ({artifact.folder}) is not in pom.xml"
        for artifact in sorted(locked - wanted)
        if artifact.folder in alone or artifact.folder not in {wish.folder for wish in wanted}
    ]
    if differences := missing + surplus:
        lines = "".join(f"  {line}\n" for line in differences)
        raise UserError(
            f"{pom} and its jars.lock disagree:\n{lines}",
            f"Run `python -m python_common.spark.jars lock {pom}` (needs Maven)",
        )


def main(command: str, pom: Path = POM, target: Path | None = None) -> None:
    """Run one of the commands fetch, check and lock."""
    if command == "fetch":
        fetch(pom, target or pom.with_name("target"))
    elif command == "check":
        require_agreement(pom)
    elif command == "lock":
        write_lock(pom)
    else:
        raise UserError(f"There is no command {command}", "Choose fetch, check or lock")


if __name__ == "__main__":
    run_module(main, sys.argv[1], *map(Path, sys.argv[2:]))
