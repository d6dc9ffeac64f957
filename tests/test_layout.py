"""Packages have few modules; tests mirror them, and have names of a line."""

import re
from pathlib import Path

from python_common.config.environment import PROJECT_ROOT

TESTS = Path(__file__).parent


def is_mirrored(test: Path) -> bool:
    """Return if a test is named after a module, folder or Java class of the folder that it mirrors, or begins so."""
    sources = (PROJECT_ROOT / test.parent.relative_to(TESTS)).iterdir()
    names = (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", source.stem).lower() for source in sources)
    return any(f"{test.stem}_".startswith(f"test_{name}_") for name in names)


def test_each_test_in_a_folder_mirrors_a_module() -> None:
    """The tests of several modules of a package are in its root, or in tests/end_to_end."""
    assert [str(test) for test in TESTS.glob("python_*/*/**/test_*.py") if not is_mirrored(test)] == []


def test_no_folder_has_more_than_14_modules() -> None:
    folders = {file.parent for file in PROJECT_ROOT.glob("python_*/**/*.py")}
    assert [str(folder) for folder in folders if len([*folder.glob("[!_]*.py")]) > 14] == []


def test_no_name_of_a_test_has_more_than_60_characters() -> None:
    names = (name for file in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text()))
    assert [name for name in names if len(name) > 60] == []
