"""What the docs name exists: the code that makes a claim true, and the test that proves it."""

import re
import subprocess
from pathlib import Path

import pytest

from lakehouse.environment import PROJECT_ROOT

PAGES = sorted([*(PROJECT_ROOT / "docs").glob("*.md"), PROJECT_ROOT / "CONTRIBUTING.md", PROJECT_ROOT / "README.md"])
FILES = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=PROJECT_ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()
PLACES = {"/".join(file.split("/")[:depth]) for file in FILES for depth in range(1, file.count("/") + 2)}
LINK = r"\]\((?!https?:)([^)#]+?)/?(?:#[^)]*)?\)"
INGESTER = [PROJECT_ROOT / file for file in FILES if re.fullmatch(r"(python_ingest|lakehouse)/.*\.py", file)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_and_functions_named_in_the_docs_exist(page: Path) -> None:
    tests = "\n".join(path.read_text() for path in (PROJECT_ROOT / "tests").rglob("*.py"))
    missing = [name for name in re.findall(r"\btest_\w+(?!\w|\.py)", page.read_text()) if f"def {name}(" not in tests]
    for module, names in re.findall(r"`(\w+)\.([\w.]+)`", page.read_text()):
        sources = [path.read_text() for path in INGESTER if path.stem == module]
        if sources and names not in ("py", "log"):
            code = "\n".join(sources)
            missing += [f"{module}.{name}" for name in names.split(".") if not re.search(rf"\b{name}\b", code)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_directories_named_in_the_docs_exist(page: Path) -> None:
    text = page.read_text()
    tops = "|".join(sorted({place for place in PLACES if "/" not in place and "." not in place}))
    named = re.findall(rf"`((?:{tops})/[\w/.-]+?)/?`", text)
    linked = [str((page.parent / link).resolve().relative_to(PROJECT_ROOT)) for link in re.findall(LINK, text)]
    made = ("spark_server/target", "bench/target")
    assert [name for name in [*named, *linked] if name not in PLACES and not name.startswith(made)] == []
