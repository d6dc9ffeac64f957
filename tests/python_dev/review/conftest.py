from dataclasses import replace

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dbt.manifest import DbtManifest
from python_dev.review import scope


@pytest.fixture(scope="session")
def side(compiled_project: DbtManifest) -> scope.Side:
    """This project, compiled without a warehouse, as a review has it: without its analyses."""
    nodes = {name: node for name, node in compiled_project.nodes.items() if node.resource_type != "analysis"}
    return scope.side(replace(compiled_project, nodes=nodes), PROJECT_ROOT)
