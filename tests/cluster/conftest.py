"""Lakes whose catalog is in PostgreSQL; `make test-slow` runs their tests."""

from pathlib import Path
from uuid import uuid4

import pytest

from python_common.config.settings import Settings
from tests.support.services.postgres import PASSWORD, Postgres
from tests.support.services.weed import Weed


@pytest.fixture(scope="session")
def properties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a catalog's properties, with the password."""
    path = tmp_path_factory.mktemp("properties") / "catalog.properties"
    # A prepared statement has no text on the wire: none would be seen to be lost.
    path.write_text(f"jdbc.password = {PASSWORD}\njdbc.prepareThreshold = 0\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def database() -> str:
    """The name of a database that is not there yet."""
    return f"lake_{uuid4().hex[:8]}"


@pytest.fixture
def settings(offline_settings: Settings, postgres: Postgres, properties: Path, database: str) -> Settings:
    """Settings of a lake in a directory, its catalog in a separate database."""
    return offline_settings.changed(catalog_uri=postgres.database(database), catalog_properties=properties)


@pytest.fixture
def in_s3(settings: Settings, weed: Weed, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The same, with warehouse and exports in a new bucket; the process has the keys."""
    bucket = weed.new_bucket(monkeypatch)
    return settings.changed(warehouse=f"s3://{bucket}/warehouse", export_root=f"s3://{bucket}/exports")
