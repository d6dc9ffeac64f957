"""The jars come complete and right from a repository that answers badly, and stay when they are there."""

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_common.errors import UserError
from python_common.spark import jars
from tests.support.services.http_server import Handler, serving

JAR = bytes(range(256)) * 4096
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <properties><one.version>1.0</one.version></properties>
  <profiles>
    <profile>
      <id>spark</id>
      <properties><excludeTransitive>true</excludeTransitive></properties>
      <dependencies>
        <dependency><groupId>org.one</groupId><artifactId>one</artifactId><version>${one.version}</version></dependency>
      </dependencies>
    </profile>
    <profile>
      <id>kafka</id>
      <dependencies>
        <dependency><groupId>org.two</groupId><artifactId>two</artifactId><version>2</version></dependency>
      </dependencies>
    </profile>
    <profile>
      <id>registry</id>
      <properties><excludeTransitive>true</excludeTransitive></properties>
      <dependencies>
        <dependency>
          <groupId>org.app</groupId><artifactId>app</artifactId><version>3</version>
          <type>tar.gz</type><classifier>all</classifier>
        </dependency>
      </dependencies>
    </profile>
    <profile>
      <id>plugins</id>
      <properties><excludeTransitive>true</excludeTransitive></properties>
      <dependencies>
        <dependency>
          <groupId>org.plugin</groupId><artifactId>plugin</artifactId><version>5</version><type>zip</type>
        </dependency>
      </dependencies>
    </profile>
  </profiles>
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
    "/org/one/one/1.0/one-1.0.jar": JAR,
    "/org/two/two/2/two-2.jar": JAR[::-1],
    "/org/needed/needed/4/needed-4.jar": b"needed by two",
    "/org/app/app/3/app-3-all.tar.gz": archive(),
    "/org/plugin/plugin/5/plugin-5.zip": zip_archive(),
}


class Repository:
    """A Maven repository over HTTP. `answers` are what the next requests get instead of the file: an HTTP status, or
    "cut", half of it."""

    url: str

    def __init__(self) -> None:
        self.files = dict(FILES)
        self.answers: list[int | str] = []
        self.asked: list[tuple[str, str | None]] = []
        repository = self

        class Answering(Handler):
            def do_GET(self) -> None:
                repository.asked.append((self.path, self.headers["Range"]))
                answer = repository.answers.pop(0) if repository.answers else 200
                if isinstance(answer, int) and answer != 200:
                    self.send_error(answer)
                    return
                content = repository.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                start = int((self.headers["Range"] or "bytes=0-")[6:-1])
                if start >= len(content):
                    self.send_error(416)
                    return
                body = content[start:]
                sent = body[: len(body) // 2] if answer == "cut" else body
                self.answer(206 if start else 200, sent, {"Content-Length": str(len(body))})

        self.handler = Answering


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A running repository, which MAVEN_REPOSITORY_URL names; there is no wait between attempts."""
    running = Repository()
    monkeypatch.setattr(jars.time, "sleep", lambda _: None)
    with serving(running.handler) as running.url:
        monkeypatch.setenv("MAVEN_REPOSITORY_URL", running.url + "/")
        yield running


@pytest.fixture
def pom(tmp_path: Path) -> Path:
    """A pom of four folders, with its lock."""
    pom = tmp_path / "pom.xml"
    pom.write_text(POM)
    folders = dict(zip(FILES, ("spark", "kafka", "kafka", "registry", "plugins"), strict=True))
    coordinates = (
        *("org.one:one:1.0:jar", "org.two:two:2:jar", "org.needed:needed:4:jar"),
        *("org.app:app:3:tar.gz:all", "org.plugin:plugin:5:zip"),
    )
    lines = [
        f"{folder} {name} {hashlib.sha256(FILES[path]).hexdigest()}\n"
        for (path, folder), name in zip(folders.items(), coordinates, strict=True)
    ]
    pom.with_name("jars.lock").write_text("".join(lines))
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


def test_everything_comes_and_is_not_asked_for_again(pom: Path, tmp_path: Path, repository: Repository) -> None:
    jars.fetch(pom, tmp_path / "target")
    assert fetched(tmp_path / "target") == EXPECTED
    assert len(repository.asked) == len(FILES)
    jars.fetch(pom, tmp_path / "target")
    assert len(repository.asked) == len(FILES)


def test_failures_are_tried_again_and_halves_are_continued(pom: Path, tmp_path: Path, repository: Repository) -> None:
    repository.answers = [503, "cut", "cut", 500, "cut", 429]
    jars.fetch(pom, tmp_path / "target")
    assert fetched(tmp_path / "target") == EXPECTED
    assert any(asked for _, asked in repository.asked)


@pytest.mark.parametrize(
    ("half", "ranges"),
    [(JAR[:1000], ["bytes=1000-"]), (b"x" * 2 * len(JAR), [f"bytes={2 * len(JAR)}-", None])],
    ids=["right", "wrong"],
)
def test_a_right_half_of_the_run_before_is_continued_and_a_wrong_one_thrown_away(
    pom: Path, tmp_path: Path, repository: Repository, half: bytes, ranges: list[str | None]
) -> None:
    part = tmp_path / "target" / "spark" / "one-1.0.jar.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(half)
    jars.fetch(pom, tmp_path / "target")
    assert [asked for path, asked in repository.asked if path == "/org/one/one/1.0/one-1.0.jar"] == ranges
    assert fetched(tmp_path / "target") == EXPECTED


def test_a_file_of_another_hash_is_refused(pom: Path, tmp_path: Path, repository: Repository) -> None:
    repository.files["/org/one/one/1.0/one-1.0.jar"] = b"something else"
    with pytest.raises(UserError, match=r"one-1\.0\.jar differs from jars\.lock in its SHA-256"):
        jars.fetch(pom, tmp_path / "target")
    assert not (tmp_path / "target" / "spark" / "one-1.0.jar").exists()


def test_a_missing_file_is_named_at_once(pom: Path, tmp_path: Path, repository: Repository) -> None:
    del repository.files["/org/two/two/2/two-2.jar"]
    with pytest.raises(UserError, match=r"org\.two:two:2:jar cannot be fetched .*404.*MAVEN_REPOSITORY_URL"):
        jars.fetch(pom, tmp_path / "target")
    assert [path for path, _ in repository.asked].count("/org/two/two/2/two-2.jar") == 1


def test_a_damaged_file_is_replaced_and_a_strange_one_removed(
    pom: Path, tmp_path: Path, repository: Repository
) -> None:
    jars.fetch(pom, tmp_path / "target")
    (tmp_path / "target" / "spark" / "one-1.0.jar").write_bytes(b"damaged")
    (tmp_path / "target" / "spark" / "one-0.9.jar").write_bytes(JAR)
    jars.fetch(pom, tmp_path / "target")
    assert fetched(tmp_path / "target") == EXPECTED


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<one.version>1.0", "<one.version>1.1", r"org\.one:one:1\.1:jar \(spark\) is not in jars\.lock"),
        ("<version>2</version>", "<version>3</version>", r"org\.two:two:3:jar \(kafka\) is not in jars\.lock"),
        ("<classifier>all</classifier>", "", r"org\.app:app:3:tar\.gz:all \(registry\) is not in pom\.xml"),
        ("<id>kafka</id>", "<id>broker</id>", r"org\.needed:needed:4:jar \(kafka\) is not in pom\.xml"),
    ],
)
def test_a_pom_that_its_lock_was_not_made_from(pom: Path, old: str, new: str, message: str) -> None:
    jars.main("check", pom)
    pom.write_text(POM.replace(old, new))
    with pytest.raises(UserError, match=message):
        jars.main("check", pom)


def test_the_mirror_of_the_users_maven_settings_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAVEN_REPOSITORY_URL", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.repository() == jars.CENTRAL
    settings = tmp_path / ".m2" / "settings.xml"
    settings.parent.mkdir()
    mirror = "<mirror><mirrorOf>{}</mirrorOf><url>https://{}.example/maven</url></mirror>"
    mirrors = mirror.format("*,!central", "others") + mirror.format("central", "company")
    settings.write_text(
        f'<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>{mirrors}</mirrors></settings>'
    )
    assert jars.repository() == "https://company.example/maven"
    monkeypatch.setenv("MAVEN_REPOSITORY_URL", "https://mine.example/")
    assert jars.repository() == "https://mine.example"


@pytest.mark.parametrize(
    "pom", ["python_common/spark/pom.xml", "python_common/spark/cluster/pom.xml", "bench/ingest/pom.xml"]
)
def test_the_projects_own_locks_agree(pom: str) -> None:
    jars.main("check", PROJECT_ROOT / pom)
