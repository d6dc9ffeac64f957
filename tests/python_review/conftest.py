import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dbt.compile import compiled_manifest
from python_review import scope


@pytest.fixture(scope="session")
def side():
    """This project, compiled without a warehouse."""
    return scope.side(compiled_manifest(PROJECT_ROOT), PROJECT_ROOT)
