"""From Kafka to CSV on a Spark cluster, PostgreSQL and S3, with each of them killed on the way: as on one machine.

The tests run in order and share one lake: what is tested is a history.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_urlsafe

import boto3
import psutil
import pytest
from pyspark.sql import SparkSession

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT, env_file, environment, home, read_env_file
from python_common.config.settings import Settings, from_environment
from python_common.spark.spark_conf import CLASS_ARCHIVE
from python_common.weeks import IsoWeek
from python_dev.stack import stack
from python_dev.stack.temporary import own_environment
from python_export.publishing.manifest import published
from python_export.publishing.target import open_target
from python_ingest.declare.topics import Declaration
from tests.support import planted
from tests.support.commands import run_lakehouse, run_python, started
from tests.support.kills import kill
from tests.support.services.postgres import PASSWORD, Postgres
from tests.support.services.spark_cluster import SparkCluster, running_cluster
from tests.support.services.spark_jvm import separate_session
from tests.support.services.weed import SECRET, Weed
from tests.support.topic_fixture import TopicFixture, assert_exactly_once, produce

pytestmark = pytest.mark.xdist_group("cluster")

LAST_WEEK = str(IsoWeek.last_complete(datetime.now(UTC)))
SIZE = ("--orders", "60", "--seed", "7", "--weeks", "2")
DOWN_SECONDS = 10
FEW, MANY = 300, 20_000
# In dbt's log once the first table is there.
BUILT = "OK created sql incremental model"

IMPATIENT = """
from python_common.spark import session
from python_jobs.cli import main
session.EXECUTOR_SECONDS = 10.0
main()
"""


@dataclass
class Servers:
    """The services of the lake, and how each goes down and comes up again."""

    cluster: SparkCluster
    postgres: Postgres
    weed: Weed

    def lose_a_worker(self) -> None:
        kill(self.cluster.workers[0].process())

    def lose_the_master(self) -> None:
        kill(self.cluster.master.process())

    def restart_the_catalog(self) -> None:
        self.postgres.stop()
        self.postgres.start()

    def lose_the_store_for_a_while(self) -> None:
        with self.weed.away():
            pass

    def up(self) -> None:
        """Start again what is down."""
        for service in (self.cluster.master, *self.cluster.workers):
            service.start()


def steps_of_the_page() -> list[str]:
    """Return the lines by which docs/deploy.md leads to the first weekly file."""
    _, _, page = (PROJECT_ROOT / "docs" / "deploy.md").read_text().partition("## From nothing to the weekly file\n")
    section, _, _ = page.partition("\n## ")
    return [line.strip() for line in section.splitlines()]


@pytest.fixture(scope="module")
def servers(postgres: Postgres, weed: Weed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Kafka and a registry with the first wave, a cluster, and an environment that names all as docs/deploy.md does."""
    with ExitStack() as running:
        cluster = running.enter_context(running_cluster(tmp_path_factory.mktemp("spark"), weed.variables))
        running.enter_context(own_environment(tmp_path_factory.mktemp("home")))
        running.callback(run_lakehouse, "stack", "down", "--wipe")
        started("--only", "kafka", "--only", "registry")
        produce_wave(1)
        etc = tmp_path_factory.mktemp("etc")
        (etc / "pgpass").write_text(f"127.0.0.1:{postgres.port}:lake_of_the_whole_way:lake:{PASSWORD}\n")
        (etc / "pgpass").chmod(0o600)
        (etc / "events").mkdir()
        # Uncompressed, so that a test can search them.
        events = f"spark.eventLog.dir file:{etc / 'events'}", "spark.eventLog.enabled true"
        here = {
            **{name: os.environ[name] for name in ("KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL", "LAKEHOUSE_HOME")},
            "LAKEHOUSE_CATALOG_URI": postgres.database("lake_of_the_whole_way"),
            "LAKEHOUSE_WAREHOUSE": "s3://lake/warehouse",
            "LAKEHOUSE_EXPORT_ROOT": "s3://export/weekly",
            "LAKEHOUSE_SPARK_CONF": str(cluster.user_file(*events, "spark.eventLog.compress false")),
            "LAKEHOUSE_PII_KEY_FILE": str(etc / "pii.key"),
            "LAKEHOUSE_THRIFT_PASSWORD": token_urlsafe(),
            "PGPASSFILE": str(etc / "pgpass"),
            "AWS_REGION": "us-east-1",
        }
        # What differs per host.
        os.environ.update(weed.variables)
        for line in steps_of_the_page():
            name, is_variable, _ = line.partition("=")
            if is_variable and name.isupper():
                os.environ[name] = here.pop(name)
        assert not here
        for bucket in ("lake", "export"):
            boto3.client("s3").create_bucket(Bucket=bucket)
        yield Servers(cluster, postgres, weed)


@pytest.fixture(scope="module")
def first_week(servers: Servers) -> dict[str, str]:
    """The output of each command of the page."""
    here = {"/etc/lakehouse/pii.key": os.environ["LAKEHOUSE_PII_KEY_FILE"], "2026-W46": LAST_WEEK}
    output = {}
    for line in steps_of_the_page():
        program, *arguments = line.split() or [""]
        if program == "lakehouse":
            done = run_lakehouse(*(here.get(word, word) for word in arguments), timeout=1200)
            assert done.returncode == 0, f"{line}:\n{done.stdout}{done.stderr}"
            output[line] = done.stdout
    return output


@pytest.fixture(scope="module")
def settings(first_week: object) -> Settings:
    """Settings of the lake, whose Thrift server has its executors on the cluster."""
    os.environ.update(read_env_file(env_file()))
    return from_environment()


@pytest.fixture(scope="module")
def spark(settings: Settings) -> Iterator[SparkSession]:
    """The session of an ingester that lives as long as the module."""
    with separate_session(settings, "whole-way") as spark:
        yield spark


def produce_wave(wave: int) -> None:
    produced = run_lakehouse("stack", "sample-data", *SIZE, "--last-week", LAST_WEEK, "--wave", str(wave))
    assert produced.returncode == 0, produced.stderr


def weekly() -> subprocess.CompletedProcess[str]:
    return run_lakehouse("weekly", "--week", LAST_WEEK, timeout=1200)


def weekly_in_trouble(trouble: Callable[[], object]) -> subprocess.CompletedProcess[str]:
    """Run the weekly job, and get it into trouble once dbt has built the first table."""

    def built() -> int:
        # dbt begins another file when one is full.
        return sum(log.read_text().count(BUILT) for log in (home() / "logs").glob("dbt.log*"))

    before = built()
    with ThreadPoolExecutor() as pool:
        done = pool.submit(weekly)
        while not done.done() and built() <= before:
            time.sleep(0.1)
        assert not done.done(), done.result().stdout + done.result().stderr
        trouble()
        return done.result()


def newest_files(settings: Settings) -> dict[str, bytes]:
    """Return the CSV of each dataset's newest version."""
    target = open_target(settings)
    in_order = sorted(published(target), key=lambda manifest: manifest.version)
    return {manifest.dataset: target.read(f"{manifest.path}/{manifest.file}") for manifest in in_order}


def contents(settings: Settings) -> dict[str, list[str]]:
    """Return the rows of all tables that readers may see, in an order that does not depend on files."""
    catalog = load_catalog(settings)
    return {
        ".".join(name): sorted(map(repr, catalog.load_table(name).scan().to_arrow().to_pylist()))
        for schema in ("marts", "exports")
        for name in catalog.list_tables(schema)
    }


def test_the_page_leads_from_nothing_to_the_weekly_file(first_week: dict[str, str], settings: Settings) -> None:
    assert len(first_week) == 6
    *_, listed = first_week.values()
    assert listed.count(LAST_WEEK) >= 5
    assert len(newest_files(settings)) == 5
    server = stack.services(environment())["thrift"].process()
    assert server is not None
    # With more jars than the archive knows, it is used all the same.
    assert not CLASS_ARCHIVE.exists() or str(CLASS_ARCHIVE) in Path(f"/proc/{server.pid}/maps").read_text()


TROUBLE = [
    Servers.lose_a_worker,
    Servers.lose_the_master,
    Servers.restart_the_catalog,
    Servers.lose_the_store_for_a_while,
]


@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda trouble: trouble.__name__)
def test_a_batch_in_trouble_is_landed_once(
    settings: Settings, servers: Servers, spark: SparkSession, trouble: Callable[[Servers], None]
) -> None:
    name = trouble.__name__
    topic = TopicFixture(settings, spark, Declaration(f"test.{name}", "bronze_tests", name, "string", "dead_letter"))
    topic.make_topic()
    produce(topic, FEW)
    topic.land_well()
    produce(topic, MANY, start=FEW)
    stages = spark.sparkContext.statusTracker()
    with ThreadPoolExecutor() as pool:
        landing = pool.submit(topic.land)
        while not landing.done() and not stages.getActiveStageIds():
            time.sleep(0.02)
        assert not landing.done()
        trouble(servers)
        landed = landing.result(timeout=300)
    # What has gone on by itself has landed all; else it reports what failed.
    assert landed.lag == 0 if landed.error is None else "Unexpected error" not in landed.error.message, landed
    servers.up()
    topic.land_well()
    assert_exactly_once(topic, FEW + MANY)


def test_a_cluster_that_gives_no_executor_is_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file asks for executors that no worker has the memory for."""
    file = tmp_path / "greedy.conf"
    file.write_text(f"{settings.spark_conf.read_text()}spark.executor.memory 64g\n")
    file.chmod(0o600)
    produce_wave(2)
    monkeypatch.setenv("LAKEHOUSE_SPARK_CONF", str(file))
    done = run_python(IMPATIENT, "ingest", "run", "payments")
    assert done.returncode == 1
    assert "runs no task for the ingester within 10 s" in done.stderr


def test_a_thrift_server_that_is_killed_in_a_build_is_named(settings: Settings, servers: Servers) -> None:
    server = stack.services(environment())["thrift"]
    done = weekly_in_trouble(lambda: kill(server.process()))
    assert done.returncode == 1
    address = f"{settings.thrift_host}:{settings.thrift_port}"
    started("--only", "thrift")
    assert f"error: The Spark Thrift server at {address} does not answer" in done.stderr


def test_a_build_goes_on_without_a_worker_and_the_master(settings: Settings, servers: Servers) -> None:
    def lose_both_for_a_while() -> None:
        servers.lose_a_worker()
        servers.lose_the_master()
        # Workers give up after some minutes without a master.
        time.sleep(DOWN_SECONDS)
        servers.up()

    done = weekly_in_trouble(lose_both_for_a_while)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_is_as_on_one_machine(settings: Settings, servers: Servers, tmp_path: Path) -> None:
    done = weekly()
    assert done.returncode == 0, done.stdout + done.stderr
    for command in ("ingest", "export"):
        verified = run_lakehouse(command, "verify")
        assert verified.returncode == 0, verified.stdout + verified.stderr
    files, tables = newest_files(settings), contents(settings)
    # A lake in files of this machine, of the same topics, masked with the same key.
    with ExitStack() as running:
        running.enter_context(own_environment(tmp_path / "one-machine"))
        os.environ.update(
            KAFKA_BOOTSTRAP_SERVERS=settings.kafka_bootstrap_servers,
            SCHEMA_REGISTRY_URL=settings.schema_registry_url,
            LAKEHOUSE_PII_KEY_FILE=str(settings.pii_key_file),
        )
        running.callback(run_lakehouse, "stack", "down", "--wipe")
        alone = started("--only", "thrift")
        done = weekly()
        assert done.returncode == 0, done.stdout + done.stderr
        alone_files = newest_files(alone)
        assert alone_files.keys() == files.keys()
        # Published once per week: the one of the cluster is of before the records that came later.
        for by_dataset in (alone_files, files):
            del by_dataset["product_demand"]
        assert alone_files == files
        assert contents(alone) == tables


def test_no_secret_is_in_an_argument_a_plan_or_a_log(settings: Settings, servers: Servers) -> None:
    secrets = {
        "database": PASSWORD,
        "store": SECRET,
        "cluster": servers.cluster.secret,
        "thrift": settings.thrift_password,
    }
    named = [form for name, text in secrets.items() for form in planted.byte_forms(name, text.encode())]
    patterns = {**planted.index(named), **planted.masking_key(settings.needed("pii_key_file"))}
    assert {"store", "cluster"} <= planted.search(patterns, settings.spark_conf.read_bytes() + SECRET.encode())
    directory, events = servers.cluster.directory, settings.needed("pii_key_file").with_name("events")
    paths = [*home().rglob("*.log*"), *directory.glob("*.log*"), *directory.glob("work/*/*/std*"), *events.glob("*/*")]
    logs = {str(path): path.read_bytes() for path in paths if path.is_file()}
    assert any(b"SparkListenerEnvironmentUpdate" in log and b"(redacted)" in log for log in logs.values())
    assert any(b"CoarseGrainedExecutorBackend" in log for log in logs.values())
    planted.assert_nothing_of(patterns, logs.items())
    processes = psutil.process_iter(["cmdline"])
    arguments = {str(one.pid): " ".join(one.info["cmdline"] or ()).encode() for one in processes}
    assert any(b"CoarseGrainedExecutorBackend" in text for text in arguments.values())
    planted.assert_nothing_of(patterns, arguments.items())
