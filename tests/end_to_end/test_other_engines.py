"""The numbers that other engines read by docs/other-engines.md, against Spark and the published file."""

from pathlib import Path
from typing import Any

import pytest

from python_common.spark import thrift
from tests.support.commands import run_lakehouse
from tests.support.lake import Lake, produce, succeed
from tests.support.other_engines import by_brand, of_file, snippets


@pytest.fixture(scope="module")
def versions(lake: Lake, first_wave: object) -> Path:
    """The published versions of a week that late data has changed."""
    if lake.expected["parameters"]["wave"] == 1:
        succeed({"sample-data": lambda: produce(wave=2), "weekly": lambda: run_lakehouse("weekly")})
    return Path(lake.settings.export_root) / "product_sales" / str(lake.last_week)


def test_other_engines_have_the_numbers_of_the_file(lake: Lake, versions: Path) -> None:
    (published, moment), (restated, now) = of_file(versions / "v1"), of_file(versions / "v2")
    assert published != restated
    namespace: dict[str, Any] = {}
    read, duck, as_of = snippets(lake, "python", moment)
    for code in (read, duck):
        exec(code, namespace)
    assert by_brand(namespace["by_brand"]) == restated
    for code in (as_of, duck):
        exec(code, namespace)
    assert by_brand(namespace["by_brand"]) == published
    with thrift.connect(lake.settings) as cursor:
        for at, figures in ((moment, published), (now, restated)):
            sql, _ = snippets(lake, "sql", at)
            assert by_brand(thrift.rows(cursor, sql)) == figures
