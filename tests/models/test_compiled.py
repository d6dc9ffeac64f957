"""What can be said of the models without a warehouse."""

import json
from pathlib import Path

from tests.conftest import run_dbt


def test_no_model_asks_the_warehouse_when_it_compiles(tmp_path: Path) -> None:
    """A view that did would keep the answer: a column that landed after it would be NULL for the batches that follow.

    Those of ops list the tables that there are; nothing follows from them.
    """
    compiled = run_dbt(
        *("--quiet", "compile", "--no-introspect", "--no-populate-cache", "--select", "resource_type:model"),
        *("--indirect-selection", "empty", "--exclude", "ops"),
        *("--target-path", str(tmp_path), "--log-path", str(tmp_path)),
        LAKEHOUSE_THRIFT_PORT="1",
    )
    assert compiled.returncode == 0, compiled.stdout[-2000:]


def test_nothing_is_joined_below_a_merge_that_is_storage_partitioned(tmp_path: Path) -> None:
    """See macros/incremental/by_order.sql: each reads one staging view, which reads one topic."""
    parsed = run_dbt("--quiet", "parse", "--target-path", str(tmp_path), "--log-path", str(tmp_path))
    assert parsed.returncode == 0, parsed.stdout[-2000:]
    nodes = json.loads((tmp_path / "manifest.json").read_text())["nodes"]
    merged = [
        name
        for name, node in nodes.items()
        if node["config"].get("incremental_strategy") in ("earliest", "latest") and node["config"].get("partition_by")
    ]
    assert len(merged) >= 8
    for name in merged:
        (view,) = nodes[name]["depends_on"]["nodes"]
        (topic,) = nodes[view]["depends_on"]["nodes"]
        assert topic.startswith("source."), name
