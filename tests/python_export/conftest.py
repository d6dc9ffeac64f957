"""What the export's tests share: settings and a catalog without a service, hostile rows in a table, both targets."""

from pathlib import Path

import pytest
import yaml
from click.testing import Result
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_dbt.project import Project
from python_export.cli import run, versions
from python_export.datasets.snapshot import Source
from python_export.publishing.target import Target, open_target
from tests.support.export_run import Shop, make_project, run_in_fork
from tests.support.hostile_rows import hostile_rows, source_of
from tests.support.in_process import Command
from tests.support.services.weed import Weed
from tests.support.small_project import write_manifest


@pytest.fixture
def export(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs `lakehouse export` with settings, and with another environment if one is given."""

    def run_command(settings: Settings, *arguments: str, env: dict[str, str] | None = None) -> Result:
        for module in (run, versions):
            monkeypatch.setattr(module, "from_environment", lambda env=None: settings)
            if env is not None:
                monkeypatch.setattr(module, "environment", lambda: env)
        return CliRunner().invoke(run.app, arguments)

    return run_command


@pytest.fixture
def catalog(offline_settings: Settings) -> Catalog:
    catalog = load_catalog(offline_settings, create=True)
    catalog.create_namespace("shop")
    return catalog


@pytest.fixture
def hostile_source(catalog: Catalog) -> Source:
    """The hostile rows in an Iceberg table."""
    return source_of(catalog, hostile_rows())


@pytest.fixture
def exports_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a dbt project that has the shop's exports, and one of events, as dbt's manifest has them."""
    metas = {"exp_weekly__events": {"key": ["note"], "order_by": ["note"], "display": {"measures": ["amount"]}}}
    for file in (PROJECT_ROOT / "models" / "exports").glob("exp_weekly__*.yml"):
        [model] = yaml.safe_load(file.read_text())["models"]
        metas[model["name"]] = model["config"]["meta"]["export"]
    # What is counted is in other models.
    exports = {name: {"export": {key: meta[key] for key in meta if key != "counts"}} for name, meta in metas.items()}
    directory = tmp_path / "target"
    directory.mkdir()
    write_manifest(directory, "exports", exports)
    monkeypatch.setenv("DBT_TARGET_PATH", str(directory))
    return {"DBT_TARGET_PATH": str(directory)}


@pytest.fixture
def s3_settings(weed: Weed, offline_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings that publish to an empty bucket."""
    return offline_settings.changed(export_root=f"s3://{weed.new_bucket(monkeypatch)}/weekly/files")


@pytest.fixture(params=["local", "s3"])
def published_to(request: pytest.FixtureRequest, offline_settings: Settings) -> Settings:
    """Settings of each kind of target."""
    return request.getfixturevalue("s3_settings") if request.param == "s3" else offline_settings


@pytest.fixture
def local(offline_settings: Settings) -> Target:
    """A directory, for claims that do not depend on the kind of target."""
    return open_target(offline_settings)


@pytest.fixture
def target(published_to: Settings) -> Target:
    return open_target(published_to)


@pytest.fixture(scope="module")
def shop_project(stack: Settings, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(stack, tmp_path_factory.mktemp("shop") / "project")


@pytest.fixture
def shop(stack: Settings, shop_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A dbt project whose bronze table is replaced, and a separate export root, whose name is difficult."""
    monkeypatch.setattr("python_dbt.run._run", run_in_fork)
    return Shop(stack.changed(export_root=str(tmp_path / "ex'ports of\\ us")), shop_project)
