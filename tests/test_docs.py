"""What the docs name exists: the code that makes a claim true, and the test that proves it."""

import re
from pathlib import Path

import pytest

from lakehouse.environment import PROJECT_ROOT

PAGES = sorted((PROJECT_ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_and_functions_named_in_the_docs_exist(page: Path) -> None:
    tests = "\n".join(path.read_text() for path in (PROJECT_ROOT / "tests").rglob("*.py"))
    missing = [name for name in re.findall(r"\btest_\w+(?!\w|\.py)", page.read_text()) if f"def {name}(" not in tests]
    for module, names in re.findall(r"`(\w+)\.([\w.]+)`", page.read_text()):
        source = PROJECT_ROOT / "python_ingest" / f"{module}.py"
        if source.exists() and names != "py":
            code = source.read_text()
            missing += [f"{module}.{name}" for name in names.split(".") if not re.search(rf"\b{name}\b", code)]
    assert missing == []
