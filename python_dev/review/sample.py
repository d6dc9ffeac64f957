"""`python -m python_dev.review.sample DIRECTORY`: the bronze tables of a lake as Parquet, for quick reviews."""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

from python_common import private_files
from python_common.catalog.catalog import load_catalog
from python_common.config.environment import home
from python_common.config.settings import from_environment
from python_common.weeks import IsoWeek


def write(directory: Path) -> None:
    """Write the bronze tables, and last the weeks of the sample data, which `lakehouse stack` has loaded."""
    catalog = load_catalog(from_environment())
    private_files.delete(directory)
    private_files.directory(directory)
    for identifier in catalog.list_tables("bronze"):
        table = catalog.load_table(identifier).scan().to_arrow()
        pq.write_table(table, directory / f"{'.'.join(identifier)}.parquet")
    loaded = json.loads((home() / "expected.json").read_text())["parameters"]
    last = IsoWeek.parse(loaded["last_week"])
    weeks = [str(last.minus(back)) for back in reversed(range(loaded["weeks"]))]
    private_files.write(directory / "weeks", ",".join(weeks))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
