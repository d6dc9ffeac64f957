"""A PostgreSQL for all tests of a lake on servers; `make test-slow` runs them."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from python_common.config.settings import Settings
from tests.support.services.postgres import PASSWORD, Postgres, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


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
