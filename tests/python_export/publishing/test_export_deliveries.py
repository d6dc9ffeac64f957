"""A week as one delivery: its newest delivery names its current versions, and a delivery never changes."""

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from python_common.errors import UserError
from python_export.notify import index
from python_export.publishing.manifest import Manifest
from python_export.publishing.publish import withdraw
from python_export.publishing.target import Target
from tests.python_export.notify.test_export_index import NEW, OLD, publish_version
from tests.python_export.publishing.test_export_publish import overwrite


def named(target: Target, path: str) -> list[tuple[str, int]]:
    """Return dataset and version of what a delivery names."""
    return [(version["dataset"], version["version"]) for version in json.loads(target.read(path))["datasets"]]


def entry(manifest: Manifest) -> dict[str, object]:
    return {
        "dataset": manifest.dataset,
        "version": manifest.version,
        "rows": 1234,
        "sha256": manifest.sha256,
        "manifest": f"{manifest.path}/manifest.json",
    }


def test_a_delivery_follows_each_change_of_the_current_versions_and_stays(target: Target) -> None:
    first = publish_version(target, OLD, "a")
    publish_version(target, NEW, "a")
    orders = publish_version(target, OLD, "a", "customer_orders")
    index.write(target)
    one, two, three, four = (f"deliveries/{OLD}/{number}.json" for number in range(1, 5))
    assert {*target.deliveries()} == {one, f"deliveries/{NEW}/1.json"}
    content = target.read(one)
    assert json.loads(content) == {
        "delivery_format": 1,
        "week": OLD,
        "delivery": 1,
        "datasets": [entry(orders), entry(first)],
    }
    index.write(target)
    assert {*target.deliveries()} == {one, f"deliveries/{NEW}/1.json"}

    second = publish_version(target, OLD, "b")
    assert index.audit(target)[-1].issues == (f"{two} is missing; the next export writes it",)
    index.write(target)
    assert index.audit(target)[-1].issues == ()
    assert named(target, two) == [("customer_orders", 1), ("events", 2)]
    withdraw(target, second.path, "a wrong price")
    index.write(target)
    assert named(target, three) == [("customer_orders", 1), ("events", 1)]
    for manifest in (first, orders):
        withdraw(target, manifest.path, "a wrong price")
    index.write(target)
    assert named(target, four) == []
    assert {*target.deliveries()} == {one, two, three, four, f"deliveries/{NEW}/1.json"}
    assert target.read(one) == content


@pytest.mark.parametrize("is_first", [True, False])
def test_a_delivery_is_never_replaced_or_made_of_superseded_versions(
    target: Target, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    publish_version(target, OLD, "a")
    if not is_first:
        index.write(target)
    current = index.current

    def suspended(*arguments: Any) -> list[Manifest]:
        listed = current(*arguments)
        monkeypatch.undo()
        publish_version(target, OLD, "b")
        index.write(target)
        return listed

    monkeypatch.setattr(index, "current", suspended)
    with pytest.raises(UserError, match=f"Another run has written .*/{OLD}/1.json") if is_first else nullcontext():
        index.write(target)
    assert len(target.deliveries()) == (1 if is_first else 2)
    assert named(target, max(target.deliveries())) == [("events", 2)]


def test_a_delivery_whose_answer_was_lost_is_written(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of NFS or S3 then asks again, and meets what it wrote."""
    publish_version(target, OLD, "a")
    create = type(target).create

    def create_twice(*arguments: Any) -> None:
        create(*arguments)
        create(*arguments)

    monkeypatch.setattr(type(target), "create", create_twice)
    index.write(target)
    assert target.deliveries() == [f"deliveries/{OLD}/1.json"]


@pytest.mark.parametrize("content", [b"", b'{"datasets'], ids=["empty", "half"])
def test_a_damaged_delivery_is_superseded_by_the_next_number(target: Target, content: bytes) -> None:
    for number in range(1, 11):
        publish_version(target, OLD, str(number))
        index.write(target)
    overwrite(target, f"deliveries/{OLD}/10.json", content)
    assert index.audit(target)[-1].issues == (f"deliveries/{OLD}/11.json is missing; the next export writes it",)
    index.write(target)
    assert named(target, f"deliveries/{OLD}/11.json") == [("events", 10)]


@pytest.mark.parametrize("published_to", ["local"], indirect=True)
def test_a_local_delivery_is_read_only_and_a_half_written_one_is_deleted(target: Target) -> None:
    publish_version(target, OLD, "a")
    index.write(target)
    file = Path(target.address(f"deliveries/{OLD}/1.json"))
    assert file.stat().st_mode & 0o222 == 0
    with pytest.raises(FileExistsError):
        target.create(f"deliveries/{OLD}/1.json", b"{}")
    assert named(target, f"deliveries/{OLD}/1.json") == [("events", 1)]
    unfinished = file.with_name(".2.json.0011aabb")
    unfinished.write_text("{")
    os.utime(unfinished, (0, 0))
    target.clean(["events"])
    assert [path.name for path in file.parent.iterdir()] == ["1.json"]
