"""A root in a bucket: answers that get lost or say no, uploads in parts, content types, and wrong variables."""

from datetime import timedelta
from io import BytesIO
from pathlib import Path, PurePosixPath

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from botocore.response import StreamingBody

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_export.notify import index
from python_export.publishing.bucket import CONTENT_TYPES
from python_export.publishing.layout import upload_folder
from python_export.publishing.manifest import published
from python_export.publishing.publish import put_contract
from python_export.publishing.target import open_target
from tests.support.hostile_rows import DATASET
from tests.support.versions import publish_content, tree

FORMATS = ("csv.gz", "parquet", "xlsx")


def test_unfinished_uploads_stay_or_those_of_others_go(s3_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def be_overtaken(**upload: str) -> None:
        """Answer as Amazon's S3 does when another machine has aborted the upload; SeaweedFS does not."""
        abort(**upload)
        raise ClientError({"Error": {"Code": "NoSuchUpload"}}, "AbortMultipartUpload")

    target = open_target(s3_settings.changed(export_root=f"s3://{open_target(s3_settings).store.name}"))
    client, bucket = target.store.client, target.store.name
    abort = client.abort_multipart_upload
    monkeypatch.setattr(client, "abort_multipart_upload", be_overtaken)

    def unfinished() -> set[str]:
        return {upload["Key"] for upload in client.list_multipart_uploads(Bucket=bucket)["Uploads"]}

    half = f"2020-W53/v1/{upload_folder()}/half.csv"
    of_others, dead = (
        {"backups/2026-W40/v3/db.dump", f"archive/{half}", "events/2020-W53/v1/half.csv"},
        f"events/{half}",
    )
    for path in (*of_others, dead, dead):
        client.create_multipart_upload(Bucket=bucket, Key=path)
    target.clean(["events"])
    assert unfinished() == of_others | {dead}
    target.clean(["events"], abandoned_after=timedelta(0))
    assert unfinished() == of_others


def test_each_object_has_its_content_type(s3_settings: Settings) -> None:
    target = open_target(s3_settings)
    publish_content(target, "note\na\n", formats=FORMATS, window_end="2021-01-04")
    put_contract(target, DATASET)
    index.write(target)
    assert {PurePosixPath(path).suffix for path in tree(target)} == CONTENT_TYPES.keys() - {""}
    for path in tree(target):
        head = target.store.client.head_object(Bucket=target.store.name, Key=target.store.prefix + path)
        assert head["ContentType"] == CONTENT_TYPES[PurePosixPath(path).suffix], path


def test_a_store_that_ignores_conditions_is_noticed(s3_settings: Settings) -> None:
    def ignore(request: AWSRequest, **_: object) -> None:
        del request.headers["If-None-Match"]

    target = open_target(s3_settings)
    # So the store sees what one sees that does not know the header.
    target.store.client.meta.events.register("before-sign.s3.PutObject", ignore)
    with pytest.raises(UserError, match=r"ignores If-None-Match: an export could replace a version of another"):
        publish_content(target, "note\na\n")
    assert tree(target) == {}


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
    monkeypatch.setattr("python_export.publishing.bucket.COMMIT_PAUSE_SECONDS", 0)
    lost = []

    def lose(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        if lost or not request.url.endswith("/manifest.json"):
            return None
        lost.append(URLLib3Session().send(request).status_code if arrives else None)
        answer = AWSResponse(request.url, status, {}, BytesIO())
        answer._content = b""
        return answer

    target = open_target(s3_settings)
    target.store.client.meta.events.register("before-send.s3.PutObject", lose)
    assert publish_content(target, "note\na\n").unchanged is False
    assert lost == [200 if arrives else None]
    assert len(tree(target)) == 4


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
    (tmp_path / "upload").mkdir()
    (tmp_path / "upload" / "rows.csv").write_text("")
    with pytest.raises(UserError, match=r"cannot be used \(SlowDown\)"):
        target.store.upload(tmp_path / "upload", "events/2020-W53/v1")
