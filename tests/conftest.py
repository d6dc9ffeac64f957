"""The session's own stack: real broker, registry and Thrift server on free ports, in a temporary home.

Each test is in one tier, by the fixtures it uses: `unit` needs no service, `stack` a service on this machine, `cluster`
is all of tests/cluster. A module that starts services itself is marked `stack`. `long` takes a test out of `make test`:
random sequences, more seeds, kill matrices, lakes of its own.

`make test` has two workers, each with a stack: one for the tests that share a lake, one for all others. A module with a
lake of its own names its group, and goes to the worker that is free first.
"""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakehouse.environment import PROJECT_ROOT, env_file, read_env_file
from lakehouse.settings import Settings, from_environment
from local_stack.temporary import own_environment
from tests.support.weed import Weed, running_weed

LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
DBT = Path(sys.executable).with_name("dbt")
# Tests that share a lake, or Thrift sessions on it: one worker runs them, in order.
ON_ONE_LAKE = ("end_to_end", "models")
SERVICES = {"services", "stack", "weed", "postgres"}


def pytest_configure() -> None:
    # Part of test names, which all workers must agree on.
    os.environ.setdefault("CHAOS_SEED", str(random.randrange(1_000_000)))


# Before pytest-xdist reads the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(tier(item))
        if item.get_closest_marker("xdist_group") is None:
            on_one_lake = item.path.parent.name in ON_ONE_LAKE
            item.add_marker(pytest.mark.xdist_group("lake" if on_one_lake else "others"))


def tier(item: pytest.Item) -> str:
    """Return the tier of a test: what has to run for it."""
    if item.path.parent.name == "cluster":
        return "cluster"
    on_s3 = "s3" in getattr(item, "callspec", SimpleNamespace(params={})).params.values()
    uses_service = on_s3 or SERVICES & {*getattr(item, "fixturenames", ())}
    return "stack" if uses_service or item.get_closest_marker("stack") else "unit"


def run_lakehouse(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the console command as a user does; its log is returned without times. The caller looks at the exit code."""
    finished = subprocess.run(
        [LAKEHOUSE, *arguments], cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    finished.stderr = re.sub(r"(?m)^[\d-]+T[\d:.]+Z ", "", finished.stderr)
    return finished


def run_dbt(
    *arguments: str, directory: Path = PROJECT_ROOT, timeout: float = 600, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run dbt with the project's profile; the caller looks at the exit code."""
    return subprocess.run(
        [DBT, "--no-use-colors", *arguments, "--profiles-dir", PROJECT_ROOT],
        cwd=directory,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture
def offline_settings(tmp_path: Path) -> Settings:
    """Settings of a lake in a directory, with no service behind it."""
    return Settings(
        kafka_bootstrap_servers="127.0.0.1:1",
        schema_registry_url="http://127.0.0.1:1",
        warehouse=str(tmp_path / "warehouse"),
        catalog_uri=f"jdbc:sqlite:{tmp_path / 'catalog.db'}",
        export_root=str(tmp_path / "exports"),
        export_staging=tmp_path / "export-staging",
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
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A running broker and registry; the process environment names them, so that subprocesses find them too."""
    with own_environment(tmp_path_factory.mktemp("lakehouse")):
        try:
            yield started("--only", "kafka", "--only", "registry")
        finally:
            run_lakehouse("stack", "down", "--wipe")


@pytest.fixture(scope="session")
def stack(services: Settings) -> Settings:
    """The whole stack: the Thrift server too."""
    return started()


def started(*only: str) -> Settings:
    """Start services, by default all, and let the environment name them."""
    started = run_lakehouse("stack", "up", *only)
    assert started.returncode == 0, started.stderr
    os.environ.update(read_env_file(env_file()))
    return from_environment()
