"""The jars come complete and right from a repository that answers badly, and stay when they are there."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tenacity import wait_none

from python_common.errors import UserError
from python_common.spark import jars
from tests.support.services.http_server import Handler, serving

JAR = bytes(range(256)) * 4096
POM = """\
<project>
  <!-- A folder per profile. -->
  <profiles><profile><id>spark</id></profile></profiles>
</project>
"""


def archive() -> bytes:
    """Return a tar.gz that holds lib/app.jar."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as contents:
        member = tarfile.TarInfo("lib/app.jar")
        member.size = len(JAR)
        contents.addfile(member, io.BytesIO(JAR))
    return file.getvalue()


def zip_archive() -> bytes:
    """Return a zip that holds plugin/org..app.jar: two dots are no way out of the folder."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as contents:
        contents.writestr("plugin/org..app.jar", JAR)
    return file.getvalue()


FILES = {
    "spark/org/one/one/1.0/one-1.0.jar": JAR,
    "kafka/org/two/two/2/two-2.jar": JAR[::-1],
    "kafka/org/needed/needed/4/needed-4.jar": b"needed by two",
    "registry/org/app/app/3/app-3-all.tar.gz": archive(),
    "plugins/org/plugin/plugin/5/plugin-5.zip": zip_archive(),
}


class Repository:
    """A Maven repository over HTTP. `answers` are what the next requests for a file get instead of it: an HTTP status,
    or "cut", half of it."""

    url: str

    def __init__(self) -> None:
        self.files = {path.partition("/")[2]: content for path, content in FILES.items()}
        self.answers: dict[str, list[int | str]] = {}
        self.asked: list[str] = []
        repository = self

        class Answering(Handler):
            def do_GET(self) -> None:
                path = self.path[1:]
                repository.asked.append(path)
                answers = repository.answers.get(path)
                answer = answers.pop(0) if answers else 200
                if path not in repository.files:
                    answer = 404
                if isinstance(answer, int) and answer != 200:
                    self.send_error(answer)
                    return
                content = repository.files[path]
                sent = content[: len(content) // 2] if answer == "cut" else content
                self.answer(200, sent, {"Content-Length": str(len(content))})

        self.handler = Answering


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A running repository, which MAVEN_REPOSITORY_URL names; there is no wait between attempts."""
    running = Repository()
    monkeypatch.setattr(jars, "WAIT", wait_none())
    with serving(running.handler) as running.url:
        monkeypatch.setenv("MAVEN_REPOSITORY_URL", running.url + "/")
        yield running


@pytest.fixture
def pom(tmp_path: Path) -> Path:
    """A pom of four folders, with its lock, which is written as `make lock-jars` does once Maven has copied files."""
    pom = tmp_path / "pom.xml"
    pom.write_text(POM)
    copied = tmp_path / "copied"
    for path, content in FILES.items():
        (copied / path).parent.mkdir(parents=True)
        (copied / path).write_bytes(content)
    (copied / "spark" / "maven-metadata-local.xml").touch()
    jars.main("lock", pom, copied)
    return pom


def fetched(target: Path) -> dict[str, bytes]:
    """Return the files under a directory by path."""
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file() and path.name != ".unpacked"
    }


EXPECTED = {
    "spark/one-1.0.jar": JAR,
    "kafka/two-2.jar": JAR[::-1],
    "kafka/needed-4.jar": b"needed by two",
    "registry/lib/app.jar": JAR,
    "plugins/plugin/org..app.jar": JAR,
}


def test_failed_and_cut_downloads_are_repeated(pom: Path, tmp_path: Path, repository: Repository) -> None:
    repository.answers = {
        "org/one/one/1.0/one-1.0.jar": [503, "cut", "cut", 429],
        "org/app/app/3/app-3-all.tar.gz": ["cut", 500],
    }
    jars.fetch(pom, tmp_path / "target")
    assert fetched(tmp_path / "target") == EXPECTED


def test_a_file_of_another_hash_is_refused(pom: Path, tmp_path: Path, repository: Repository) -> None:
    repository.files["org/one/one/1.0/one-1.0.jar"] = b"something else"
    with pytest.raises(UserError, match=r"one-1\.0\.jar cannot be fetched: it differs from jars\.lock in its SHA-256"):
        jars.fetch(pom, tmp_path / "target")
    assert fetched(tmp_path / "target").keys() == EXPECTED.keys() - {"spark/one-1.0.jar"}


def test_a_missing_file_is_named_at_once(pom: Path, tmp_path: Path, repository: Repository) -> None:
    del repository.files["org/two/two/2/two-2.jar"]
    with pytest.raises(UserError, match=r"org/two/two/2/two-2\.jar cannot be fetched: .*404.*MAVEN_REPOSITORY_URL"):
        jars.fetch(pom, tmp_path / "target")
    assert repository.asked.count("org/two/two/2/two-2.jar") == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "no address"])
def test_an_unreachable_repository_is_named(
    pom: Path, tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("MAVEN_REPOSITORY_URL", url)
    with pytest.raises(UserError, match=rf"{url}/org/.* cannot be fetched: .*MAVEN_REPOSITORY_URL"):
        jars.fetch(pom, tmp_path / "target")


def test_a_directory_of_jars_is_a_repository(pom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, content in FILES.items():
        file = tmp_path / "repository" / path.partition("/")[2]
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    monkeypatch.setenv("MAVEN_REPOSITORY_URL", (tmp_path / "repository").as_uri())
    jars.fetch(pom, tmp_path / "target")
    assert fetched(tmp_path / "target") == EXPECTED


def test_only_damaged_files_are_fetched_again_and_others_removed(
    pom: Path, tmp_path: Path, repository: Repository
) -> None:
    jars.fetch(pom, tmp_path / "target")
    assert fetched(tmp_path / "target") == EXPECTED
    (tmp_path / "target" / "spark" / "one-1.0.jar").write_bytes(b"damaged")
    (tmp_path / "target" / "spark" / "one-0.9.jar").write_bytes(JAR)
    jars.fetch(pom, tmp_path / "target")
    assert fetched(tmp_path / "target") == EXPECTED
    assert len(repository.asked) == len(FILES) + 1


def test_a_pom_that_its_lock_was_not_made_from_is_refused(pom: Path) -> None:
    pom.write_text(POM.replace("A folder per profile", "One\n  comment").replace("  <profiles>", "\n <profiles>"))
    jars.main("check", pom)
    pom.write_text(POM.replace("<id>spark", "<id>kafka"))
    with pytest.raises(UserError, match=r"disagree.*make lock-jars POM="):
        jars.main("check", pom)
