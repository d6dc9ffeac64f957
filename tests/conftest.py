"""The session's stack: real broker, registry and Thrift server on free ports, in a temporary home.

Each test is in one tier. `slow` are tests/cluster and tests/trino, and modules that are marked so: separate lakes,
faults of services, kills at random. `integration` are tests whose fixtures start services or dbt, and modules that
start them themselves and are marked so. All others are `unit`. `random` are those with a seed. `make test` runs all but
the slow ones; `make test-slow` runs these, and more seeds; with PART=2/8, the second of eight parts of about equal
length.

`make test` has two workers. A module is a group, which one worker runs in order. The worker that is free takes the next
group: one the main lake, the other the tests of the whole stack, then both what needs less, unit tests at the end.
"""

import fcntl
import gc
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_common.spark.spark_conf import session
from python_dbt import compile as compiling
from python_dbt.manifest import DbtManifest
from python_dev.stack.temporary import own_environment
from tests.support import forked
from tests.support.commands import run_dbt_well, started, wipe
from tests.support.seeds import ROUNDS
from tests.support.services.interpreted import INTERPRETED
from tests.support.services.postgres import Postgres, running_postgres
from tests.support.services.weed import Weed, running_weed

TESTS = Path(__file__).parent
# What is built, or started, once for several modules; they are one group.
MAIN_LAKE, STACK = "main lake", "stack"
# Fixtures that start services or dbt; `published_to` is each kind of target, of which S3 is a service.
SERVICES = {"services", "stack", "lake", "weed", "published_to", "compiled_project", "parsed_project"}
# How many minutes the longest groups of `make test-slow` take, with two workers on two cores; another one takes one.
SLOW_MINUTES = {
    **{"upgrade": 30, "cluster": 24, "small lake": 19, "main lake": 9, "highest": 9, "lowest": 7},
    **{"models/test_increments": 11, "models/test_state": 11, "models/test_columns": 3},
    **{"python_dev/review/test_run": 11, "python_export/test_run_withheld": 4, "python_ingest/test_faults_outages": 4},
    **{"cluster/test_catalogs": 3, "end_to_end/test_new_topic": 3},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="run the K-th of N parts of the groups, of about equal length")


def pytest_configure() -> None:
    # With the defaults, collecting garbage takes a fourteenth of the CPU time of the unit tests.
    gc.set_threshold(50_000, 50, 50)


# Before pytest-xdist reads the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(tier(item))
        if "random_seed" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.random)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(default_group(item)))
    items.sort(key=lambda item: (group(item) != MAIN_LAKE, group(item) != STACK, tier(item) == "unit"))
    if part := config.getoption("--part"):
        number, of = map(int, part.split("/"))
        chosen = parts({group(item) for item in items if is_slow(item)}, of)[number - 1]
        config.hook.pytest_deselected(items=[item for item in items if group(item) not in chosen])
        items[:] = [item for item in items if group(item) in chosen]


def pytest_collection_finish(session: pytest.Session) -> None:
    # The server of forks may start for another test first. Unit tests run no dbt, which takes seconds to load.
    if any(tier(item) != "unit" for item in session.items):
        forked.preload(*forked.DBT)


def group(item: pytest.Item) -> str:
    """Return the group of a test, which one worker runs."""
    return next(str(mark.args[0]) for mark in item.iter_markers("xdist_group"))


def is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in ("slow", "random"))


def parts(groups: Iterable[str], number: int) -> list[set[str]]:
    """Distribute groups over parts of about equal length: the longest first, each to the shortest part so far."""
    shares: list[set[str]] = [set() for _ in range(number)]
    minutes = {name: SLOW_MINUTES.get(name, 1) for name in groups}
    for name in sorted(minutes, key=lambda name: (-minutes[name], name)):
        min(shares, key=lambda share: sum(minutes[one] for one in share)).add(name)
    return shares


def default_group(item: pytest.Item) -> str:
    """Return the module of a test, or what several modules share."""
    fixtures = getattr(item, "fixturenames", ())
    if "first_wave" in fixtures:
        return MAIN_LAKE
    if "stack" in fixtures and tier(item) != "slow":
        return STACK
    return str(item.path.relative_to(TESTS).with_suffix(""))


def tier(item: pytest.Item) -> str:
    """Return the tier of a test."""
    if item.path.parent.name in ("cluster", "trino") or item.get_closest_marker("slow"):
        return "slow"
    starts_services = SERVICES & {*getattr(item, "fixturenames", ())} or item.get_closest_marker("integration")
    return "integration" if starts_services else "unit"


@pytest.fixture(params=range(1 + 10 * ROUNDS))
def random_seed(request: pytest.FixtureRequest) -> int:
    """The seed of a random test."""
    return request.param


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Callable[[str, Callable[[Path], None]], Path]:
    """Return a function that returns the path of a name, which it has a function make, once for all workers."""

    def path_of(name: str, make: Callable[[Path], None]) -> Path:
        directory = tmp_path_factory.getbasetemp()
        path = (directory.parent if "PYTEST_XDIST_WORKER" in os.environ else directory) / f"{name}-{testrun_uid}"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                draft = Path(tempfile.mkdtemp(dir=path.parent)) / name
                make(draft)
                draft.rename(path)
        return path

    return path_of


@pytest.fixture(scope="session")
def compiled_project(once: Callable[[str, Callable[[Path], None]], Path]) -> DbtManifest:
    """The manifest of this project and its analyses, compiled without a warehouse; a test that changes it copies it."""

    def compile_once(path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiling, "COPIED", (*compiling.COPIED, "analyses"))
            path.write_bytes(pickle.dumps(compiling.compiled_manifest(PROJECT_ROOT)))

    return pickle.loads(once("compiled", compile_once).read_bytes())


@pytest.fixture(scope="session")
def parsed_project(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A target directory of dbt in which this project is parsed."""

    def parse(target: Path) -> None:
        # What was parsed before would be left where it is.
        run_dbt_well("--quiet", "parse", "--no-partial-parse", "--target-path", str(target), "--log-path", str(target))

    return once("parsed", parse)


@pytest.fixture
def offline_settings(tmp_path: Path) -> Settings:
    """Settings of a lake in a directory, with no service behind it."""
    return Settings(
        kafka_bootstrap_servers="127.0.0.1:1",
        schema_registry_url="http://127.0.0.1:1",
        warehouse=str(tmp_path / "warehouse"),
        catalog_uri=f"jdbc:sqlite:{tmp_path / 'catalog.db'}",
        export_root=str(tmp_path / "exports"),
        home=tmp_path,
        pii_key_file=tmp_path / "pii.key",
        thrift_host="127.0.0.1",
        thrift_port=1,
        thrift_password="",
    )


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    """An S3 and an Iceberg REST catalog."""
    with running_weed(tmp_path_factory.mktemp("weed")) as weed:
        yield weed


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A running broker and registry; the process environment names them, so that subprocesses find them too.

    Spark generates code if TEST_ROUNDS is set, as by `make test-slow`: for few rows that takes longer than their jobs.
    """
    with own_environment(tmp_path_factory.mktemp("lakehouse")):
        os.environ.update({} if ROUNDS else INTERPRETED)
        try:
            yield started("--only", "kafka", "--only", "registry")
        finally:
            wipe()


@pytest.fixture(scope="session")
def spark(services: Settings) -> Iterator[SparkSession]:
    """A Spark session of the test process."""
    spark = session(services, "tests")
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def stack(services: Settings) -> Settings:
    """The complete stack: the Thrift server too."""
    return started()
