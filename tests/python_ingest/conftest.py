"""What the ingester's tests share: a topic and a table per test, and topics of a registry without a broker."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.config.settings import Settings
from python_common.spark.session import LazySparkSession
from python_ingest.declare.topics import Declaration
from tests.support import in_process
from tests.support.in_process import Lakehouse
from tests.support.registered_topic import RegisteredTopic
from tests.support.services.schema_registry import Registrations, registry_of
from tests.support.topic_fixture import TopicFixture, declared_in, new_declaration


@pytest.fixture
def declaration() -> Declaration:
    return new_declaration()


@pytest.fixture
def catalog(offline_settings: Settings) -> Catalog:
    """A catalog in a directory, with the namespace of bronze; a namespace that exists may be made again."""
    catalog = load_catalog(offline_settings, create=True)
    for _ in range(2):
        make_namespace(catalog, "bronze")
    return catalog


@pytest.fixture
def registered(offline_settings: Settings) -> Iterator[Callable[..., RegisteredTopic]]:
    """Return a function that returns the topic `shop`, declared with these changes; all share one registry."""
    registrations = Registrations()
    with registry_of(registrations) as url:
        settings = offline_settings.changed(schema_registry_url=url)
        declaration = Declaration("shop", "bronze", "shop")

        def topic(**changes: Any) -> RegisteredTopic:
            return RegisteredTopic(settings, replace(declaration, **changes), registrations)

        yield topic


@pytest.fixture
def topic(services: Settings, spark: SparkSession, declaration: Declaration) -> TopicFixture:
    topic = TopicFixture(services, spark, declaration)
    topic.make_topic()
    return topic


@pytest.fixture
def ingest(spark: SparkSession, models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """Return a function that runs a command of `lakehouse ingest` on what `models_dir` declares, in the test process
    with the session of the tests."""
    monkeypatch.setattr(LazySparkSession, "__call__", lambda _: spark)
    return lambda *arguments: in_process.lakehouse("ingest", *arguments, "--models", str(models_dir))


@pytest.fixture
def models_dir(tmp_path: Path, declaration: Declaration) -> Path:
    """A directory whose one source file declares the test's topic."""
    return declared_in(tmp_path, declaration)
