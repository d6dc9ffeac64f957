"""Versions: a new one for new content only, the old ones untouched, and a pointer that never goes back."""

import errno
import hashlib
import json
import secrets
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.response import StreamingBody
from click.testing import Result
from hostile_rows import draft
from typer.testing import CliRunner

from lakehouse.errors import UserError
from lakehouse.settings import Settings
from python_export.cli import app
from python_export.dictionary import Field
from python_export.manifest import newest, published
from python_export.publish import Published, publish
from python_export.target import S3Target, Target, open_target


def stage(target: Target, content: str) -> Path:
    """Return a file that stands alone, ready to be published."""
    staged = target.staging / secrets.token_hex(4) / "part-0.csv"
    staged.parent.mkdir(parents=True)
    staged.write_text(content)
    return staged


def publish_content(target: Target, content: str, week: str = "2020-W53") -> Published:
    scratch = target.staging / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return publish(target, stage(target, content), draft(week), [Field("note", "", description="Said.")], scratch)


def tree(target: Target) -> dict[str, bytes]:
    """Return every public file."""
    if isinstance(target, S3Target):
        return {path: target.read(path) for path, _ in target._objects()}
    files = (path for path in target.root.rglob("*") if path.is_file() and ".staging" not in path.parts)
    return {str(path.relative_to(target.root)): path.read_bytes() for path in files}


def pointer(target: Target) -> dict:
    return json.loads(target.read("events/latest.json"))


def test_first_version(target: Target) -> None:
    published = publish_content(target, "note\na\n")

    assert published.unchanged is False
    assert published.file == target.address("events/2020-W53/v1/events_2020-W53_v1.csv")
    assert set(tree(target)) == {
        "events/2020-W53/v1/events_2020-W53_v1.csv",
        "events/2020-W53/v1/datapackage.json",
        "events/2020-W53/v1/dictionary.csv",
        "events/2020-W53/v1/manifest.json",
        "events/latest.json",
    }
    manifest = json.loads(target.read("events/2020-W53/v1/manifest.json"))
    assert manifest["version"] == 1
    assert manifest["supersedes"] is None
    assert manifest["bytes"] == 7
    assert manifest["sha256"] == hashlib.sha256(b"note\na\n").hexdigest()
    assert manifest["control_totals"] == {"amount": "0.10"}
    assert pointer(target) == {
        "dataset": "events",
        "week": "2020-W53",
        "version": 1,
        "file": "2020-W53/v1/events_2020-W53_v1.csv",
        "manifest": "2020-W53/v1/manifest.json",
        "sha256": manifest["sha256"],
    }


def test_same_content_is_the_same_version(target: Target) -> None:
    first = publish_content(target, "note\na\n")
    before = tree(target)

    again = publish_content(target, "note\na\n")

    assert again == Published(first.manifest, first.file, unchanged=True)
    assert tree(target) == before


def test_changed_content_is_a_new_version_and_the_old_one_stays(target: Target) -> None:
    publish_content(target, "note\na\n")
    before = tree(target)

    second = publish_content(target, "note\nb\n")

    assert (second.manifest.version, second.manifest.supersedes) == (2, 1)
    assert second.manifest.difference == {"added": 1, "removed": 1, "changed": 0}
    assert second.manifest.reason == "late or corrected data"
    after = tree(target)
    assert {name: after[name] for name in before if "latest" not in name} == {
        name: content for name, content in before.items() if "latest" not in name
    }
    assert pointer(target)["version"] == 2


def test_content_of_an_older_version_is_a_new_version(target: Target) -> None:
    for content in ("note\na\n", "note\nb\n", "note\na\n"):
        published = publish_content(target, content)

    assert (published.manifest.version, published.manifest.supersedes) == (3, 2)


@pytest.mark.parametrize("published_to", ["local"], indirect=True)
def test_versions_are_numbers_not_text(target: Target) -> None:
    for number in range(11):
        published = publish_content(target, f"note\n{number}\n")

    assert (published.manifest.version, published.manifest.supersedes) == (11, 10)
    assert pointer(target)["version"] == 11


@pytest.mark.parametrize("published_to", ["local"], indirect=True)
def test_a_key_that_the_old_version_lacks_makes_every_row_another(target: Target) -> None:
    publish_content(target, "note\na\n")
    columns = [{"name": name, "type": "string", "nulls": 0} for name in ("part", "note")]
    wider = replace(draft("2020-W53"), key=["part", "note"], columns=columns)

    second = publish(target, stage(target, "part,note\n1,a\n2,a\n"), wider, (), target.staging / "scratch")

    assert second.manifest.difference == {"added": 2, "removed": 1, "changed": 0}
    assert second.manifest.reason == "other columns, late or corrected data"


@pytest.mark.parametrize("published_to", ["local"], indirect=True)
def test_a_damaged_old_file_stops_the_publication_and_is_not_quoted(target: Target) -> None:
    first = publish_content(target, "note\na\n")
    Path(first.file).write_text('note\n"secret\n')

    with pytest.raises(UserError, match=r"2020-W53/v1 and .*/v2 could not be compared") as refusal:
        publish_content(target, "note\nb\n")
    assert "secret" not in str(refusal.value)


def test_late_data_for_an_older_week_does_not_move_the_pointer_back(target: Target) -> None:
    publish_content(target, "note\na\n", "2020-W53")
    publish_content(target, "note\nb\n", "2021-W01")
    late = publish_content(target, "note\nc\n", "2020-W53")

    assert late.manifest.version == 2
    assert (pointer(target)["week"], pointer(target)["version"]) == ("2021-W01", 1)


def test_a_run_that_died_before_the_pointer_is_healed_by_the_next(target: Target) -> None:
    publish_content(target, "note\na\n")
    old_pointer = target.read("events/latest.json")
    publish_content(target, "note\nb\n")
    target.put("events/latest.json", old_pointer)

    assert publish_content(target, "note\nb\n").unchanged
    assert pointer(target)["version"] == 2


def test_what_a_run_left_that_died_before_the_commit_is_no_version(target: Target) -> None:
    publish_content(target, "note\na\n", "2020-W53")
    if isinstance(target, S3Target):
        for path in ("2021-W01/v1/events_2021-W01_v1.csv", "2020-W53/v2/events_2020-W53_v2.csv"):
            target.put(f"events/{path}", b"note\nhalf")
        target.client.create_multipart_upload(Bucket=target.bucket, Key=f"{target.prefix}/events/2020-W53/v2/x.csv")
    else:
        (target.root / "events" / "2021-W01").mkdir()
        (target.root / "events" / ".latest.json.0123abcd").write_text("{")
        (target.staging / "run" / "version").mkdir(parents=True)

    before = tree(target)
    target.clean()
    assert tree(target) == before
    assert target.versions() == ["events/2020-W53/v1"]
    assert newest(target, "events").week == "2020-W53"
    target.clean(abandoned_after=timedelta(0))
    assert len(tree(target)) == 5
    if isinstance(target, S3Target):
        assert not target.client.list_multipart_uploads(Bucket=target.bucket).get("Uploads")
    assert publish_content(target, "note\nb\n", "2020-W53").manifest.version == 2
    assert publish_content(target, "note\nc\n", "2021-W01").manifest.version == 1


def test_what_others_keep_in_the_bucket_is_left_alone(s3_settings: Settings) -> None:
    target = open_target(replace(s3_settings, export_root=f"s3://{open_target(s3_settings).bucket}"))
    for path in ("invoices/2026/11/a.pdf", "site/2020-W53/img/a.png", "events/2020-W53/v1/half.csv"):
        target.put(path, b"")
    for key in ("backups/db.dump", "events/2020-W53/v1/half.csv"):
        upload = target.client.create_multipart_upload(Bucket=target.bucket, Key=key)
    target.clean(abandoned_after=timedelta(0))
    assert set(tree(target)) == {"invoices/2026/11/a.pdf", "site/2020-W53/img/a.png"}
    [others] = target.client.list_multipart_uploads(Bucket=target.bucket)["Uploads"]
    assert others["Key"] == "backups/db.dump"
    # Another machine has aborted it since it was listed.
    target._abort(upload["Key"], upload["UploadId"])


def test_a_version_that_is_committed_during_the_cleaning_stays(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def list_and_be_overtaken(self: S3Target) -> list:
        found = [*objects(self)]
        self.put("events/2020-W53/v1/manifest.json", b"{}")
        return found

    target, objects = open_target(s3_settings), S3Target._objects
    target.put("events/2020-W53/v1/events_2020-W53_v1.csv", b"note\na\n")
    with monkeypatch.context() as overtaken:
        overtaken.setattr(S3Target, "_objects", list_and_be_overtaken)
        target.clean(abandoned_after=timedelta(0))
    assert len(tree(target)) == 2


def test_a_pointer_that_cannot_be_written_leaves_nothing(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = open_target(offline_settings)
    monkeypatch.setattr("python_export.target._sync", full)
    with pytest.raises(OSError, match="No space left"):
        target.put("events/latest.json", b"{}")
    assert tree(target) == {}


def test_an_upload_of_the_same_content_is_carried_on_and_of_other_content_is_left_alone(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(self: S3Target, file: Path, path: str) -> None:
        if file.name == "manifest.json":
            raise KeyboardInterrupt
        write(self, file, path)

    target = open_target(s3_settings)
    write = S3Target._write
    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(S3Target, "_write", die)
        publish_content(target, "note\na\n")
    before = tree(target)
    target.clean()
    assert len(tree(target)) == len(before) == 3

    with pytest.raises(UserError, match=r"Another export is publishing .*/2020-W53/v1 with other content"):
        publish_content(target, "note\nb\n")
    assert tree(target) == before
    assert publish_content(target, "note\na\n").manifest.version == 1


def test_large_files_go_up_in_parts_and_replace_nothing_either(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("python_export.target.PART_BYTES", 5 * 1024 * 1024)
    target = open_target(s3_settings)
    content = "note\n" + "0123456789\n" * 600_000
    published = publish_content(target, content)
    assert target.read(f"{published.manifest.path}/{published.manifest.file}") == content.encode()
    with pytest.raises(FileExistsError):
        target._write(stage(target, content), f"{published.manifest.path}/{published.manifest.file}")


@pytest.mark.parametrize("content", ["note\na\n", "note\nb\n"])
def test_of_two_writers_of_a_version_the_second_agrees_or_fails(
    target: Target, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """The second has looked before the first was there; a lock does not keep machines apart."""
    add = type(target).add

    def overtaken(self: Target, directory: Path, path: str) -> None:
        monkeypatch.undo()
        publish_content(target, "note\na\n")
        add(self, directory, path)

    monkeypatch.setattr(type(target), "add", overtaken)
    if content == "note\na\n":
        assert publish_content(target, content).unchanged
    else:
        with pytest.raises(UserError, match="with other content"):
            publish_content(target, content)
    files = tree(target)
    assert files["events/2020-W53/v1/events_2020-W53_v1.csv"] == b"note\na\n"
    assert len(files) == 5


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"dataset": "events"}', None])
def test_a_damaged_manifest_stops_the_publication(offline_settings: Settings, damaged: str | None) -> None:
    root = Path(offline_settings.export_root)
    target = open_target(offline_settings)
    publish_content(target, "note\na\n")
    manifest = root / "events" / "2020-W53" / "v1" / "manifest.json"
    manifest.unlink()
    if damaged is not None:
        manifest.write_text(damaged)
    before = tree(target)

    with pytest.raises(UserError, match=r"manifest\.json is missing or damaged"):
        publish_content(target, "note\nb\n")
    assert tree(target) == before


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("gs://bucket/prefix", "LAKEHOUSE_EXPORT_ROOT is gs://bucket/prefix"),
        ("s3://", "LAKEHOUSE_EXPORT_ROOT is s3://"),
        ("s3://no-such-bucket", r"The export root s3://no-such-bucket/ cannot be used \(NoSuchBucket\)"),
    ],
)
def test_a_root_that_is_none_is_named(s3_settings: Settings, root: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        published(open_target(replace(s3_settings, export_root=root)))


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("AWS_ENDPOINT_URL_S3", "localhost:9000", "Invalid endpoint: localhost:9000"),
        ("AWS_PROFILE", "nobody", r"The config profile \(nobody\) could not be found"),
    ],
)
def test_wrong_aws_variables_are_named(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UserError, match=rf"The export root s3://.* cannot be used \({expected}\)"):
        open_target(s3_settings)


def test_a_store_that_stalls_within_a_file_is_named(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stall(*_: object, **__: object) -> None:
        raise ReadTimeoutError(endpoint_url="")

    target = open_target(s3_settings)
    target.put("events/latest.json", b"{}")
    monkeypatch.setattr(StreamingBody, "read", stall)
    for attempt in (lambda: target.read("events/latest.json"), lambda: target.fetch("events/latest.json", tmp_path)):
        with pytest.raises(UserError, match=r"cannot be used \(ReadTimeoutError\)"):
            attempt()


def listed(settings: Settings, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.setattr("python_export.cli.from_environment", lambda: settings)
    return CliRunner().invoke(app, ["list", *options])


def test_the_list_has_every_version_and_what_came_after_it(
    published_to: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content, week in (("a", "2020-W53"), ("b", "2020-W53"), ("a", "2021-W01")):
        publish_content(open_target(published_to), f"note\n{content}\n", week)

    lines = [line.split()[:6] for line in listed(published_to, monkeypatch).output.splitlines()[1:]]
    assert [(line[1], line[2], line[5] if line[5].startswith("v") else None) for line in lines] == [
        ("2020-W53", "v1", "v2"),
        ("2020-W53", "v2", None),
        ("2021-W01", "v1", None),
    ]
    found = json.loads(listed(published_to, monkeypatch, "--dataset", "events", "--json").output)
    assert [(one["week"], one["version"]) for one in found] == [("2020-W53", 1), ("2020-W53", 2), ("2021-W01", 1)]
    unknown = listed(published_to, monkeypatch, "--dataset", "evnts")
    assert str(unknown.exception).startswith("Nothing of evnts is published")
