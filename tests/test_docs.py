"""Check that paths, functions, tests and headings named in the docs exist, and that tables stay readable."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from python_common.config.environment import PROJECT_ROOT

PAGES = sorted(
    [
        *(PROJECT_ROOT / "docs").glob("*.md"),
        *(PROJECT_ROOT / name for name in ("CONTRIBUTING.md", "README.md", "bench/README.md")),
    ]
)
# The changelog names files of former releases, and deploy/README.md files of an operator: only tables are checked.
TABLES = [*PAGES, PROJECT_ROOT / "CHANGELOG.md", PROJECT_ROOT / "deploy" / "README.md"]
LONGEST_CELL = 200
FILES = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=PROJECT_ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()
PATHS = {"/".join(file.split("/")[:depth]) for file in FILES for depth in range(1, file.count("/") + 2)}
ANCHORED = r"\]\((?!https?:)([^)#]*)#([^)]+)\)"
LINK = r"\]\((?!https?:)([^)#]+?)/?(?:#[^)]*)?\)"
CELL = re.compile(r"(?<!\\)\|")
INGESTER = [PROJECT_ROOT / file for file in FILES if re.fullmatch(r"(python_ingest|python_common)/.*\.py", file)]


def name_of(page: Path) -> str:
    """Return a page's path in the project."""
    return str(page.relative_to(PROJECT_ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_and_functions_named_in_the_docs_exist(page: Path) -> None:
    tests = "\n".join(path.read_text() for path in (PROJECT_ROOT / "tests").rglob("*.py"))
    missing = [name for name in re.findall(r"\btest_\w+(?!\w|\.py|:)", page.read_text()) if f"def {name}(" not in tests]
    for module, names in re.findall(r"`(\w+)\.([\w.]+)`", page.read_text()):
        sources = [path.read_text() for path in INGESTER if path.stem == module]
        if sources and names not in ("py", "log", "json"):
            code = "\n".join(sources)
            missing += [f"{module}.{name}" for name in names.split(".") if not re.search(rf"\b{name}\b", code)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_and_directories_named_in_the_docs_exist(page: Path) -> None:
    text = page.read_text()
    tops = "|".join(sorted({path for path in PATHS if "/" not in path and "." not in path}))
    named = re.findall(rf"`((?:{tops})/[\w/.-]+?)/?`", text)
    linked = [str((page.parent / link).resolve().relative_to(PROJECT_ROOT)) for link in re.findall(LINK, text)]
    made = ("python_common/spark/target", "bench/target")
    assert [name for name in [*named, *linked] if name not in PATHS and not name.startswith(made)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_headings_that_links_name_exist(page: Path) -> None:
    missing = []
    for link, anchor in re.findall(ANCHORED, page.read_text()):
        target = (page.parent / link).resolve() if link else page
        headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
        if anchor not in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}:
            missing.append(f"{link}#{anchor}")
    assert missing == []


@pytest.mark.parametrize("page", TABLES, ids=name_of)
def test_no_table_cell_is_longer_than_200_characters(page: Path) -> None:
    rows = [(number, line) for number, line in enumerate(page.read_text().splitlines(), 1) if line.startswith("|")]
    cells = [(number, cell.strip()) for number, line in rows for cell in CELL.split(line)]
    assert [f"line {number}: {cell[:60]}" for number, cell in cells if len(cell) > LONGEST_CELL] == []


@pytest.mark.parametrize(("page", "lines"), [("CONTRIBUTING.md", 100), ("README.md", 120)])
def test_what_everyone_reads_is_short(page: str, lines: int) -> None:
    assert len((PROJECT_ROOT / page).read_text().splitlines()) <= lines


def test_the_tested_versions_are_the_pinned_ones() -> None:
    page = (PROJECT_ROOT / "docs" / "upgrading.md").read_text()
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(re.findall(r"^([\w-]+)[^=]*==(.*)$", "\n".join(project["dependencies"]), re.MULTILINE))
    pom = (PROJECT_ROOT / "python_common" / "spark" / "pom.xml").read_text()
    versions = [pins[name] for name in ("pyspark", "pyiceberg", "dbt-core", "dbt-spark", "duckdb")]
    for artifact in ("iceberg-spark-runtime-[^<]*", "kafka-clients", "kafka_2.13", "apicurio-registry-app"):
        versions += re.findall(rf"<artifactId>{artifact}</artifactId>\s*<version>([^<]*)</version>", pom)
    versions += re.findall("<trino.version>(.*)</", (PROJECT_ROOT / "tests" / "trino" / "pom.xml").read_text())
    assert len(versions) == 10
    assert [version for version in versions if version not in page] == []
