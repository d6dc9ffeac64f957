"""SeaweedFS for tests: S3 that checks secrets and keeps conditions of writes, and an Iceberg REST catalog on it."""

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import boto3
import httpx2
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from python_common.process import Service, free_ports

OUTAGE_SECONDS = 10.0
KEY, SECRET = "lake-key", "lake-secret-8e02"
TABLE_BUCKET = "lakeb"
"""The bucket of the REST catalog's tables."""
READER_KEY, READER_SECRET, READER_BUCKET = "reader-key", "reader-secret-5c90", "shared-lake"
READABLE = ("marts", "exports", "reference")
"""The folders of that bucket's warehouse that its reader may read."""


@dataclass(frozen=True)
class Weed:
    """A running SeaweedFS, and the addresses of its S3 and its catalog."""

    service: Service
    s3: str
    catalog: str

    def kill(self) -> None:
        """End it as a crash does; `service.start()` has it again, with its data, on the same ports."""
        if process := self.service.process():
            process.kill()
        self.service.stop()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Refuse connections for ten seconds, from the begin of the block on."""
        self.kill()
        coming = Timer(OUTAGE_SECONDS, self.service.start)
        coming.start()
        try:
            yield
        finally:
            coming.join()

    @property
    def variables(self) -> dict[str, str]:
        """What has the standard clients use its S3."""
        return {
            "AWS_ENDPOINT_URL_S3": self.s3,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def new_bucket(self, monkeypatch: pytest.MonkeyPatch) -> str:
        """Return a new bucket, which this process and those that it starts may use, and no other account."""
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in self.variables.items():
            monkeypatch.setenv(name, value)
        bucket = f"bucket-{secrets.token_hex(4)}"
        boto3.client("s3").create_bucket(Bucket=bucket)
        return bucket


@contextmanager
def running_weed(directory: Path) -> Iterator[Weed]:
    """Run a server on free ports, with its data in `directory`."""
    identity = {
        "name": "lake",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    reader = {
        "name": "reader",
        "credentials": [{"accessKey": READER_KEY, "secretKey": READER_SECRET}],
        "actions": [f"Read:{READER_BUCKET}/warehouse/{schema}/*" for schema in READABLE],
    }
    (directory / "identities.json").write_text(json.dumps({"identities": [identity, reader]}))
    # Each has a default that may be in use or, a port and ten thousand, be none.
    names = ["s3.port", "s3.port.iceberg", "s3.port.lance", "s3.port.grpc"]
    names += [f"{name}.port{kind}" for name in ("master", "volume", "filer", "admin") for kind in ("", ".grpc")]
    ports = free_ports(len(names))
    options = [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
    s3, catalog = (f"http://127.0.0.1:{port}" for port in ports[:2])
    service = Service(
        name="weed",
        directory=directory,
        command=lambda: [
            str(Path(sys.executable).with_name("weed")),
            *("mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-dir=.", "-admin.ui=false", "-webdav=false"),
            # A bucket takes several volumes, and by default there are only as many as fit on the disk when full.
            *(f"-tableBucket={TABLE_BUCKET}", "-s3.config=identities.json", "-volume.max=10000", *options),
        ],
        ports={"S3": ports[0]},
        answers=lambda: _answers(catalog) and _stores(s3),
    )
    weed = Weed(service, s3, catalog)
    service.start()
    try:
        yield weed
    finally:
        # It takes its time to end by itself, and nothing of it stays.
        weed.kill()


def _answers(address: str) -> bool:
    """Return whether the catalog gives tokens, and has its bucket, which it makes a moment later."""
    login = {"grant_type": "client_credentials", "client_id": KEY, "client_secret": SECRET, "scope": "catalog"}
    try:
        token = httpx2.post(f"{address}/v1/oauth/tokens", data=login).json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.get(f"{address}/v1/{TABLE_BUCKET}/namespaces", headers=headers).status_code == 200
    except (httpx2.HTTPError, ValueError, KeyError):
        return False


def _stores(address: str) -> bool:
    """Return whether objects can be written and read: after a start the volumes that hold them come last."""
    client = boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    probe = {"Bucket": "probe", "Key": "probe"}
    try:
        with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=probe["Bucket"])
        client.put_object(**probe, Body=b"stored")
        return client.get_object(**probe)["Body"].read() == b"stored"
    except (BotoCoreError, ClientError):
        return False
