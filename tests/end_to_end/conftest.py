"""Runs the main job the way a scheduler does, and reads the results with another engine than Spark."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_common.config.environment import home
from python_common.config.settings import Settings
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.log import Log
from python_dev.stack.sample_data.produce import register, send
from python_dev.stack.temporary import own_environment
from tests.support.commands import run_dbt, run_lakehouse, started, wipe
from tests.support.lake import SMALL, Lake, Steps, produce, succeed
from tests.support.person import of_person
from tests.support.services.interpreted import INTERPRETED


@pytest.fixture(scope="package")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake of the small sample data, on a separate stack, whose Spark generates no code."""
    with own_environment(tmp_path_factory.mktemp("small-lake")):
        os.environ.update(INTERPRETED)
        try:
            lake = Lake(started())
            succeed({"sample-data": lambda: produce(1, SMALL)})
            yield lake
        finally:
            wipe()


@pytest.fixture(scope="package")
def person(small_lake: Lake) -> Log:
    """The records of a person, which are in the small lake's topics after those of the sample data."""
    week = small_lake.last_week
    records = of_person(week, produced_log(**SMALL, last_week=week))
    send(records, register(records, small_lake.settings), small_lake.settings)
    return records


@pytest.fixture(scope="package")
def first_export(small_lake: Lake, person: Log) -> Steps:
    """An export of one dataset, before anything else was built."""
    return succeed(
        {
            "ingest": lambda: run_lakehouse("ingest", "run"),
            "export": lambda: run_lakehouse("export", "run", "order_lines"),
        }
    )


@pytest.fixture(scope="package")
def published(small_lake: Lake, first_export: Steps) -> Steps:
    """The weekly job of two weeks, after which all datasets are published, and the unit tests of the models."""
    weeks = f"{small_lake.last_week.minus(1)}..{small_lake.last_week}"
    return succeed(
        {
            "weekly": lambda: run_lakehouse("weekly", "--weeks", weeks),
            "unit tests": lambda: run_dbt("test", "--select", "test_type:unit"),
        }
    )


@pytest.fixture(scope="package")
def lake(services: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The main lake, with a separate Thrift server: what other modules leave is in other topics, and not in it."""
    with own_environment(tmp_path_factory.mktemp("main-lake")):
        os.environ.update(
            INTERPRETED,
            KAFKA_BOOTSTRAP_SERVERS=services.kafka_bootstrap_servers,
            SCHEMA_REGISTRY_URL=services.schema_registry_url,
            # No row that fails a test may be stored even if it is asked for.
            DBT_STORE_FAILURES="true",
        )
        try:
            yield Lake(started("--only", "thrift", "--only", "mail"))
        finally:
            wipe()


@pytest.fixture(scope="package")
def first_wave(lake: Lake) -> Steps:
    """The weekly job of the first wave."""
    return succeed(
        {
            "sample-data": lambda: produce(wave=1),
            "weekly": lambda: run_lakehouse("weekly"),
        }
    )


@pytest.fixture(scope="package")
def target(first_wave: object) -> Path:
    """A dbt target directory with the docs, and with the SQL of every node as an increment."""
    directory = home() / "target" / "docs"
    generated = run_dbt("docs", "generate", "--target-path", str(directory))
    assert generated.returncode == 0, generated.stdout[-3000:]
    return directory
