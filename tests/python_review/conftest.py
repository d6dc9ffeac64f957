import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dbt.manifest import DbtManifest
from python_review import scope


@pytest.fixture(scope="session")
def side(compiled_project: DbtManifest) -> scope.Side:
    """This project, compiled without a warehouse."""
    return scope.side(compiled_project, PROJECT_ROOT)
