"""Which modules use what a library keeps private, at which version of it."""

import ast
from importlib.metadata import version
from itertools import chain
from pathlib import Path

from python_common.config.environment import PROJECT_ROOT

# To move a version: read these modules beside the library's changes, and write the new one here.
USES = {
    ("pyiceberg", "0.12.0"): {
        *("python_common/catalog/catalog.py", "python_common/catalog/commits.py"),
        "python_ingest/verify/bronze_rows.py",
    },
    ("pyspark", "4.1.1"): {
        *("python_common/spark/session.py", "python_common/spark/spark_conf.py"),
        *("python_ingest/landing/batch.py", "python_ingest/maintenance/purge.py"),
    },
    ("confluent-kafka", "2.16.1"): {"python_ingest/kafka/registry.py"},
    ("xlsxwriter", "3.3.1"): {"python_export/publishing/formats.py"},
}
# Private by their spelling alone: error codes of Kafka's client, an exit without clean-up, and types for checkers.
DOCUMENTED = {"KafkaError", "os", "_typeshed"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def uses_private_names(path: Path) -> bool:
    """Return whether a module reads a private name of another one, or of an object that is not its own."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and is_private(node.attr)]
    # What one instance of a class of the module reads of another.
    own = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    foreign = {
        node.attr
        for node in attributes
        if ast.unparse(node.value) == "super()" or (node.attr not in own and ast.unparse(node.value) not in DOCUMENTED)
    }
    imported = [
        (node.module or "", *(one.name for one in node.names)) for node in nodes if isinstance(node, ast.ImportFrom)
    ]
    steps = chain.from_iterable(name.split(".") for names in imported for name in names)
    return bool(foreign) or any(is_private(step) and step not in DOCUMENTED for step in steps)


def test_private_names_are_used_at_other_versions_or_elsewhere() -> None:
    modules = [path for path in PROJECT_ROOT.glob("python_*/**/*.py") if "target" not in path.parts]
    assert {str(path.relative_to(PROJECT_ROOT)) for path in modules if uses_private_names(path)} == {
        *chain.from_iterable(USES.values())
    }
    assert {(name, version(name)) for name, _ in USES} == {*USES}
