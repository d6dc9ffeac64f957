"""What tests of a review share: this project, compiled, and a catalog of each side."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from python_common.config.environment import PROJECT_ROOT
from python_dbt.manifest import DbtManifest
from python_dev.review import scope


@pytest.fixture(scope="session")
def side(compiled_project: DbtManifest) -> scope.Side:
    """This project, compiled without a warehouse, as a review has it: without its analyses."""
    nodes = {name: node for name, node in compiled_project.nodes.items() if node.resource_type != "analysis"}
    return scope.side(replace(compiled_project, nodes=nodes), PROJECT_ROOT)


@pytest.fixture
def sides(tmp_path: Path) -> list[SqlCatalog]:
    """Two empty catalogs."""
    catalogs = [SqlCatalog(name, uri="sqlite://", warehouse=str(tmp_path / name)) for name in ("before", "after")]
    for catalog in catalogs:
        catalog.create_namespace("marts")
    return catalogs
