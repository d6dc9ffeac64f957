"""The bucket by which Spark hands over unloads: only complete ones are used, and what died goes, nothing of others."""

from datetime import timedelta
from pathlib import Path

import boto3
import pytest

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_export.csv.unload import UnloadBucket


@pytest.fixture
def bucket(s3_settings: Settings) -> UnloadBucket:
    return UnloadBucket.at(f"{s3_settings.export_root}/unloads".replace("s3://", "s3a://"))


def put(bucket: UnloadBucket, path: str) -> None:
    boto3.client("s3").put_object(Bucket=bucket.bucket, Key=f"{bucket.prefix}/{path}", Body=path.encode())


def paths(bucket: UnloadBucket) -> list[str]:
    return sorted(path for path, _ in bucket._objects())


def start_upload(bucket: UnloadBucket, path: str) -> None:
    boto3.client("s3").create_multipart_upload(Bucket=bucket.bucket, Key=f"{bucket.prefix}/{path}")


def unfinished(bucket: UnloadBucket) -> list[str]:
    listed = boto3.client("s3").list_multipart_uploads(Bucket=bucket.bucket).get("Uploads", [])
    return sorted(upload["Key"].removeprefix(f"{bucket.prefix}/") for upload in listed)


def test_the_parts_of_an_unload_are_used_once_it_is_complete(bucket: UnloadBucket, tmp_path: Path) -> None:
    with bucket.folder() as folder:
        put(bucket, f"{folder}/part-00000-a.csv")
        put(bucket, f"{folder}/_temporary/0/part-00001-a.csv")
        with pytest.raises(UserError, match=r"Spark left no file under s3a://.*AWS_ENDPOINT_URL_S3"):
            bucket.take(folder, tmp_path / "early")
        put(bucket, f"{folder}/part-00001-a.csv")
        put(bucket, f"{folder}/_SUCCESS")
        bucket.take(folder, tmp_path / "whole")
    assert {file.name: file.read_text() for file in (tmp_path / "whole").iterdir()} == {
        name: f"{folder}/{name}" for name in ("part-00000-a.csv", "part-00001-a.csv")
    }
    assert paths(bucket) == []


def test_the_folder_of_an_unload_that_fails_is_deleted_and_the_failure_reported(bucket: UnloadBucket) -> None:
    def fail() -> None:
        with bucket.folder() as folder:
            put(bucket, f"{folder}/part-00000-a.csv")
            raise UserError("Spark failed", "See its log")

    with pytest.raises(UserError, match="Spark failed"):
        fail()
    assert paths(bucket) == []


def test_what_runs_that_died_left_is_deleted_and_nothing_else(bucket: UnloadBucket) -> None:
    died = "lakehouse-unload-0123456789abcdef"
    others = ["lakehouse-unload-of-others/part-0.csv", "2026/part-0.csv"]
    for path in (f"{died}/part-0.csv", f"{died}/_temporary/0/part-1.csv", *others):
        put(bucket, path)
        start_upload(bucket, f"{path}.unfinished")
    bucket.clean()
    assert len(paths(bucket)) == len(unfinished(bucket)) == 4
    bucket.clean(abandoned_after=timedelta(0))
    assert paths(bucket) == sorted(others)
    assert unfinished(bucket) == sorted(f"{path}.unfinished" for path in others)


def test_a_place_of_unloads_that_cannot_be_used_is_named(bucket: UnloadBucket) -> None:
    with pytest.raises(UserError, match=r"The place of unloads s3://no-such-bucket/a cannot be used \(NoSuchBucket\)"):
        UnloadBucket.at("s3a://no-such-bucket/a").clean()
