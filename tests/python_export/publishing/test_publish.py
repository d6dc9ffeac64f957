"""Versions: a new one for new content only, the old ones untouched, and a pointer that never goes back."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path, PurePosixPath

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from botocore.response import StreamingBody

from python_common import private_files
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_dev.stack import stack
from python_export.datasets import contract
from python_export.publishing.manifest import FileColumn, Manifest, ManifestError, paths, published, read, read_all
from python_export.publishing.publish import Published, put_contract
from python_export.publishing.s3_target import CONDITIONAL, CONTENT_TYPES, S3Target
from python_export.publishing.target import Target, open_target
from tests.support.hostile_rows import DATASET, draft
from tests.support.in_process import Command
from tests.support.versions import overwrite, pointer, publish_content, publish_file, tree, without_folders


def test_first_version(target: Target) -> None:
    published = publish_content(target, "note\na\n")

    assert published.unchanged is False
    assert without_folders([published.file]) == {target.address("events/2020-W53/v1/events_2020-W53_v1.csv")}
    assert without_folders(tree(target)) == {
        "events/2020-W53/v1/events_2020-W53_v1.csv",
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
        "file": f"2020-W53/v1/{manifest['file']}",
        "manifest": "2020-W53/v1/manifest.json",
        "sha256": manifest["sha256"],
    }


def test_changed_content_is_a_new_version_and_the_old_one_stays(local: Target) -> None:
    first = publish_content(local, "note\na\n")
    before = tree(local)
    assert publish_content(local, "note\na\n") == Published(first.manifest, first.file, unchanged=True)
    assert tree(local) == before

    second = publish_content(local, "note\nb\n")
    assert (second.manifest.version, second.manifest.supersedes) == (2, 1)
    assert second.manifest.difference == {"added": 1, "removed": 1, "changed": 0}
    assert second.manifest.reason == "late or corrected data"
    assert second.manifest.changed_columns == {}
    after = tree(local)
    assert {name: after[name] for name in before if "latest" not in name} == {
        name: content for name, content in before.items() if "latest" not in name
    }
    assert pointer(local)["version"] == 2


def publish_rows(target: Target, header: str, *rows: str, key: tuple[str, ...] = ("note",)) -> Manifest:
    columns = [{"name": name, "type": "string", "nulls": 0} for name in header.split(",")]
    described = replace(draft("2020-W53"), key=[*key], columns=columns)
    return publish_file(target, "\n".join([header, *rows, ""]), described).manifest


def test_a_key_that_the_old_version_lacks_matches_rows(local: Target) -> None:
    publish_rows(local, "note", "a")
    second = publish_rows(local, "part,note", "1,a", "2,a", key=("part", "note"))
    assert second.difference == {"added": 2, "removed": 1, "changed": 0}
    assert second.reason == "added columns: part, late or corrected data"


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ("note,c,a,b", "added columns: a and b"),
        ("b,note", "added columns: b, removed columns: c"),
        ("note", "removed columns: c"),
        ("c,note", "another order of columns"),
    ],
)
def test_changed_columns_are_named(local: Target, after: str, reason: str) -> None:
    publish_rows(local, "note,c", "x,x")
    assert publish_rows(local, after, re.sub(r"\w+", "x", after)).reason == reason


def test_a_row_whose_key_is_null_in_part_is_another_row(local: Target) -> None:
    for rows in (("1,,a,", "2,,b,", "3,,b,1"), ("1,,a,", "2,,c,", "3,,,2")):
        second = publish_rows(local, "part,note,figure,price", *rows, key=("part", "note"))
    assert second.difference == {"added": 0, "removed": 0, "changed": 2}
    assert second.changed_columns == {"figure": 2, "price": 1}


@pytest.mark.parametrize("content", [None, b'note\n"cut off, secret\n', b"note\nsecret\n"])
def test_a_damaged_old_file_is_superseded_without_a_difference(local: Target, content: bytes | None) -> None:
    first = publish_content(local, "note\na\n").manifest
    overwrite(local, f"{first.path}/{first.file}", content)

    second = publish_content(local, "note\nb\n").manifest
    assert (second.version, second.supersedes, second.difference) == (2, 1, None)
    assert second.warnings == ["v1 is damaged, so it is not known what changed since"]
    assert "secret" not in second.text()
    assert published(local)[-1] == second


def test_a_published_version_cannot_be_written(local: Target) -> None:
    file = Path(publish_content(local, "note\na\n").file)
    assert [oct(path.stat().st_mode & 0o222) for path in (file.parent, *file.parent.iterdir())] == ["0o0"] * 4


def test_a_writer_that_died_after_the_rename_leaves_it_open(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_files, "_callers_umask", 0o022)
    target, version = open_target(offline_settings), Path(offline_settings.export_root) / "events/2020-W53/v1"
    before = os.umask(private_files.UMASK)
    try:
        with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
            rename = Path.rename

            def die_after_the_version(path: Path, target_path: Path) -> None:
                rename(path, target_path)
                if target_path == version:
                    raise KeyboardInterrupt

            killed.setattr(Path, "rename", die_after_the_version)
            publish_content(target, "note\na\n")
        assert [oct(path.stat().st_mode & 0o777) for path in (version, *version.iterdir())] == ["0o755", *["0o444"] * 3]
        # Killed before a folder got its mode.
        version.parents[1].chmod(0o700)
        target.clean(["events"])
        assert publish_content(target, "note\na\n").unchanged
        modes = [oct(path.stat().st_mode & 0o777) for path in (version, *version.parents[:2])]
        assert modes == ["0o555", "0o755", "0o755"]
    finally:
        os.umask(before)


def test_what_others_keep_under_the_root_is_no_version(target: Target) -> None:
    path = publish_content(target, "note\na\n").manifest.path
    for foreign in (
        "dbt/target/manifest.json",
        "models/churn/v1/manifest.json",
        "a/b/c/2020-W53/v1/manifest.json",
        "events/2020-W53/v1.bak/manifest.json",
        "events/2020-W53/v01/manifest.json",
        "events/2020-W53/manifest.json",
        "2020-W53/v1/manifest.json",
    ):
        target.put(foreign, b"{}")
    assert target.versions() == target.versions("events/") == [path]
    manifests, unreadable = read_all(target, paths(target))
    assert ([*manifests], unreadable) == ([path], {})


def test_a_stack_is_wiped_with_all_that_it_has_published(
    offline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_content(open_target(offline_settings), "note\na\n")
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    (tmp_path / stack.MARK).touch()
    with monkeypatch.context() as undeletable, pytest.raises(UserError, match="could not be deleted"):
        undeletable.setattr("shutil.rmtree", lambda *_, **__: None)
        stack.wipe()
    stack.wipe()
    assert not tmp_path.exists()


def test_another_contract_takes_the_place_of_one(local: Target) -> None:
    for dataset in (DATASET, replace(DATASET, description="Another one.")):
        put_contract(local, dataset)
        assert local.read(f"{DATASET.name}/{contract.FILE}") == contract.text(dataset).encode()


def test_late_data_for_an_older_week_moves_the_pointer_back(local: Target) -> None:
    publish_content(local, "note\na\n", "2020-W53")
    old_pointer = local.read("events/latest.json")
    publish_content(local, "note\nb\n", "2021-W01")
    assert publish_content(local, "note\nc\n", "2020-W53").manifest.version == 2
    assert (pointer(local)["week"], pointer(local)["version"]) == ("2021-W01", 1)
    # As a run that died before it left the pointer.
    local.put("events/latest.json", old_pointer)
    assert publish_content(local, "note\nb\n", "2021-W01").unchanged
    assert pointer(local)["week"] == "2021-W01"


def test_files_of_a_dead_run_are_a_version(local: Target) -> None:
    publish_content(local, "note\na\n", "2020-W53")
    (local.root / "events" / "2021-W01").mkdir()
    for name in ("events/.latest.json", ".versions.json", ".index.html", ".others.json"):
        (local.root / f"{name}.0123abcd").write_text("{")
    local.put("versions.json", b"{}")
    (local.staging / "run" / "version").mkdir(parents=True)

    before = tree(local)
    local.clean(["events"])
    assert tree(local) == before
    assert local.versions() == ["events/2020-W53/v1"]
    local.clean(["events"], abandoned_after=timedelta(0))
    assert len(tree(local)) == 6
    assert [path.name for path in local.root.rglob(".*abcd")] == [".others.json.0123abcd"]
    assert publish_content(local, "note\nc\n", "2021-W01").manifest.version == 1


def start_upload(target: S3Target, path: str) -> str:
    """Begin an upload in parts that is never ended, and return its number."""
    return target.client.create_multipart_upload(Bucket=target.bucket, Key=target._key(path))["UploadId"]


def test_what_others_keep_in_the_bucket_is_left_alone(s3_settings: Settings) -> None:
    target = open_target(s3_settings.changed(export_root=f"s3://{open_target(s3_settings).bucket}"))
    folder = target.folder()
    of_others = {
        "invoices/2026/11/a.pdf",
        "backups/2026-W40/v3/db.dump",
        # Not by this project, although where its files are; another project's dataset; damaged, not abandoned.
        "events/2020-W53/v1/half.csv",
        f"archive/2020-W53/v1/{folder}half.csv",
        "events/2019-W01/v1/manifest.json",
        f"events/2019-W01/v1/{folder}events_2019-W01_v1.csv",
        f"events/2019-W01/v1/{target.folder()}events_2019-W01_v1.csv",
    }
    for path in of_others | {f"events/2020-W53/v1/{folder}half.csv"}:
        target.client.put_object(Bucket=target.bucket, Key=path, Body=b"{")
    for path in ("backups/2026-W40/v3/db.dump", f"archive/2020-W53/v1/{folder}half.csv"):
        start_upload(target, path)
    start_upload(target, f"events/2020-W53/v1/{folder}half.csv")

    target.clean(["events"], abandoned_after=timedelta(0))
    assert set(tree(target)) == of_others
    uploads = target.client.list_multipart_uploads(Bucket=target.bucket)["Uploads"]
    assert {upload["Key"] for upload in uploads} == {
        "backups/2026-W40/v3/db.dump",
        f"archive/2020-W53/v1/{folder}half.csv",
    }


def test_an_upload_that_another_machine_aborts_first_is_no_error(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_overtaken(**upload: str) -> None:
        """Answer as Amazon's S3 does when there is no such upload any more; SeaweedFS does not."""
        abort(**upload)
        raise ClientError({"Error": {"Code": "NoSuchUpload"}}, "AbortMultipartUpload")

    target = open_target(s3_settings)
    for _ in range(2):
        start_upload(target, f"events/2020-W53/v1/{target.folder()}half.csv")
    abort = target.client.abort_multipart_upload
    monkeypatch.setattr(target.client, "abort_multipart_upload", be_overtaken)
    target.clean(["events"], abandoned_after=timedelta(0))
    assert not target.client.list_multipart_uploads(Bucket=target.bucket).get("Uploads")


def test_a_version_that_is_committed_during_the_cleaning_stays(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def list_and_be_overtaken(self: S3Target, under: str = "") -> list:
        listed_objects = [*objects(self, under)]
        self.put("events/2020-W53/v1/manifest.json", json.dumps({"file": f"{folder}half.csv"}).encode())
        return listed_objects

    target, objects = open_target(s3_settings), S3Target._objects
    folder = target.folder()
    target.put(f"events/2020-W53/v1/{folder}half.csv", b"note\na\n")
    with monkeypatch.context() as overtaken:
        overtaken.setattr(S3Target, "_objects", list_and_be_overtaken)
        target.clean(["events"], abandoned_after=timedelta(0))
    assert len(tree(target)) == 2


@pytest.mark.parametrize("content", ["note\na\n", "note\nb\n"], ids=["same", "other"])
def test_an_upload_that_died_blocks_no_other(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    target = open_target(s3_settings)
    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(S3Target, "_commit", die)
        publish_content(target, "note\na\n")
    target.clean(["events"])
    assert len(without_folders(tree(target))) == 2

    assert publish_content(target, content).manifest.version == 1
    target.clean(["events"], abandoned_after=timedelta(0))
    assert len(tree(target)) == 5
    assert target.read(f"{published(target)[0].path}/{published(target)[0].file}") == content.encode()


def test_each_object_has_its_content_type(s3_settings: Settings) -> None:
    target = open_target(s3_settings)
    publish_content(target, "note\na\n")
    for path in {*tree(target)} - {CONDITIONAL}:
        head = target.client.head_object(Bucket=target.bucket, Key=target._key(path))
        assert head["ContentType"] == CONTENT_TYPES[PurePosixPath(path).suffix], path


def test_a_store_that_ignores_conditions_is_noticed(s3_settings: Settings) -> None:
    def ignore(request: AWSRequest, **_: object) -> None:
        del request.headers["If-None-Match"]

    target = open_target(s3_settings)
    # So the store sees what one sees that does not know the header.
    target.client.meta.events.register("before-sign.s3.PutObject", ignore)
    with pytest.raises(UserError, match=r"ignores If-None-Match: an export could replace a version of another"):
        publish_content(target, "note\na\n")
    assert set(tree(target)) == {CONDITIONAL}


@pytest.mark.parametrize(
    ("arrives", "status"),
    [
        # boto3 asks again, and the store refuses: there is a manifest, this one.
        (True, 503),
        # Another write of the same object is going on; which of them is there is known afterwards.
        (False, 409),
    ],
)
def test_a_commit_whose_outcome_is_not_known_is_asked_for_again(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch, arrives: bool, status: int
) -> None:
    monkeypatch.setattr("python_export.publishing.s3_target.COMMIT_PAUSE_SECONDS", 0)
    lost = []

    def lose(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        if lost or not request.url.endswith("/manifest.json"):
            return None
        lost.append(URLLib3Session().send(request).status_code if arrives else None)
        answer = AWSResponse(request.url, status, {}, BytesIO())
        answer._content = b""
        return answer

    target = open_target(s3_settings)
    target.client.meta.events.register("before-send.s3.PutObject", lose)
    assert publish_content(target, "note\na\n").unchanged is False
    assert lost == [200 if arrives else None]
    assert len(without_folders(tree(target))) == 4


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
    [name] = [path for path in files if path.endswith("/events_2020-W53_v1.csv")]
    assert files[name] == b"note\na\n"
    # Nothing of the second one is left.
    assert len({*files} - {CONDITIONAL}) == 4


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"dataset": "events"}', None])
def test_a_damaged_manifest_costs_its_version_and_no_other(
    offline_settings: Settings, damaged: bytes | None, export: Command
) -> None:
    target = open_target(offline_settings)
    publish_content(target, "note\na\n", "2020-W52")
    publish_content(target, "note\na\n")
    overwrite(target, "events/2020-W53/v1/manifest.json", damaged)

    manifests, unreadable = read_all(target, paths(target))
    assert [*manifests] == ["events/2020-W52/v1"]
    assert "events/2020-W53/v1/manifest.json is missing or damaged" in unreadable["events/2020-W53/v1"].message
    result = export(offline_settings, "list")
    assert "2020-W52" in result.output
    assert "1 versions are not in this list: " in str(result.exception)

    second = publish_content(target, "note\nb\n").manifest
    assert (second.version, second.supersedes, second.difference) == (2, 1, None)
    assert second.warnings == ["v1 is damaged, so it is not known what changed since"]
    assert pointer(target)["version"] == 2


def test_a_manifest_that_cannot_be_read_is_called_damaged(local: Target) -> None:
    publish_content(local, "note\na\n")
    manifest = Path(local.address("events/2020-W53/v1/manifest.json"))
    manifest.parent.chmod(0o755)
    manifest.unlink()
    manifest.symlink_to(manifest)
    with pytest.raises(ManifestError, match=r"v1/manifest\.json cannot be read \(Too many levels of symbolic links\)"):
        publish_content(local, "note\na\n")
    assert paths(local) == ["events/2020-W53/v1"]


def test_a_manifest_of_an_older_release_is_damaged(local: Target) -> None:
    path = publish_content(local, "note\na\n").manifest.path
    written = json.loads(local.read(f"{path}/manifest.json"))
    needed = {field.name for field in fields(Manifest) if field.default is MISSING and field.default_factory is MISSING}
    overwrite(local, f"{path}/manifest.json", json.dumps({name: written[name] for name in needed}).encode())
    old = read(local, path)
    assert (old.key, old.reason, old.withdrawn, old.columns) == ([], "", None, [FileColumn("note", "string", 0)])
    assert list(json.loads(old.text())) == list(written)
    assert json.loads(old.text()) == written | {"key": [], "reason": "", "difference": None, "totals_by": {}}


def test_a_manifest_of_a_newer_release_is_damaged(local: Target) -> None:
    path = publish_content(local, "note\na\n").manifest.path
    written = json.loads(local.read(f"{path}/manifest.json"))
    overwrite(local, f"{path}/manifest.json", json.dumps(written | {"colour": "red"}).encode())
    assert publish_content(local, "note\na\n").unchanged

    overwrite(local, f"{path}/manifest.json", json.dumps(written | {"manifest_format": 2}).encode())
    manifests, unreadable = read_all(local, paths(local))
    assert manifests == {}
    assert "was written by a newer release" in unreadable[path].message
    with pytest.raises(UserError, match="was written by a newer release"):
        publish_content(local, "note\nb\n")


@pytest.mark.parametrize(
    ("root", "variables", "expected"),
    [
        ("gs://bucket/prefix", {}, "LAKEHOUSE_EXPORT_ROOT is gs://bucket/prefix"),
        ("s3://", {}, "LAKEHOUSE_EXPORT_ROOT is s3://"),
        ("s3://no-such-bucket", {}, r"The export root s3://no-such-bucket/ cannot be used \(NoSuchBucket\)"),
        (
            "s3://a",
            {"AWS_ENDPOINT_URL_S3": "localhost:9000"},
            r"s3://a cannot be used \(Invalid endpoint: localhost:9000\)",
        ),
        (
            "s3://a",
            {"AWS_PROFILE": "nobody"},
            r"s3://a cannot be used \(The config profile \(nobody\) could",
        ),
    ],
)
def test_an_invalid_root_or_aws_variable_is_not_named(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch, root: str, variables: dict[str, str], expected: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=expected):
        published(open_target(s3_settings.changed(export_root=root)))


def test_a_store_that_stalls_or_refuses_an_upload_is_not_named(
    s3_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stall(*_: object, **__: object) -> None:
        raise ReadTimeoutError(endpoint_url="")

    def refuse(*_: object, **__: object) -> None:
        """Fail as boto3 does, which wraps the answer of a store that is full or overloaded."""
        raise ClientError({"Error": {"Code": "SlowDown"}}, "PutObject")

    target = open_target(s3_settings)
    target.put("events/latest.json", b"{}")
    monkeypatch.setattr(StreamingBody, "read", stall)
    monkeypatch.setattr(StreamingBody, "__next__", stall, raising=False)
    for attempt in (lambda: target.read("events/latest.json"), lambda: target.fetch("events/latest.json", tmp_path)):
        with pytest.raises(UserError, match=r"cannot be used \(ReadTimeoutError\)"):
            attempt()
    monkeypatch.setattr("s3transfer.futures.TransferFuture.result", refuse)
    (tmp_path / "rows.csv").write_text("")
    with pytest.raises(UserError, match=r"cannot be used \(SlowDown\)"):
        target.add(tmp_path, "events/2020-W53/v1")


def test_the_list_has_every_version_and_what_came_after_it(offline_settings: Settings, export: Command) -> None:
    for content, week in (("a", "2020-W53"), ("b", "2020-W53"), ("a", "2021-W01")):
        publish_content(open_target(offline_settings), f"note\n{content}\n", week)

    def listed(*options: str) -> list[tuple[str, int]]:
        entries = json.loads(export(offline_settings, "list", *options, "--json").output)
        return [(entry["week"], entry["version"]) for entry in entries]

    first, *_ = export(offline_settings, "list").output.splitlines()[1:]
    assert first.split()[1:3] + first.split()[-1:] == ["2020-W53", "v1", "v2"]
    assert listed("events") == [("2020-W53", 1), ("2020-W53", 2), ("2021-W01", 1)]
    assert listed("--week", "2021-W01") == [("2021-W01", 1)]
    unknown = export(offline_settings, "list", "evnts")
    assert str(unknown.exception).startswith("Nothing of evnts is published")


def test_a_version_is_published_without_its_snapshot(local: Target) -> None:
    tagged: list[str] = []

    def refuse(manifest: Manifest) -> None:
        raise UserError(f"{manifest.path} cannot be kept", "Run it again")

    def publish_kept(keep: Callable[[Manifest], None]) -> Published:
        return publish_file(local, "a", draft("2020-W53"), tag_snapshot=keep)

    with pytest.raises(UserError, match="events/2020-W53/v1 cannot be kept"):
        publish_kept(refuse)
    assert local.versions() == []
    # The tag of a version that is there may have been lost: it is made again.
    for _ in range(2):
        publish_kept(lambda manifest: tagged.append(manifest.path))
    assert tagged == ["events/2020-W53/v1"] * 2
