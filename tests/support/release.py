"""A former release, in an environment of its own locks."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from python_common.config.environment import PROJECT_ROOT, TARGET

# What `uv run` and `make` hand to their children: it would lead uv or make back to this project.
INHERITED = {
    *("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH"),
    *("UV", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "VIRTUAL_ENV"),
}


@dataclass(frozen=True)
class Release:
    """The tree of a release that is set up; its commands run on the lake that the environment names."""

    tree: Path

    def lakehouse(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run its console command."""
        return self._run("lakehouse", *arguments, env=env)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run its Python, with its packages and tests."""
        return self._run("python", *arguments, env={})

    def _run(self, program: str, *arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        command = [str(self.tree / ".venv" / "bin" / program), *arguments]
        return subprocess.run(
            command, cwd=self.tree, env=outside(env), capture_output=True, text=True, timeout=900, check=False
        )


def outside(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process of another project."""
    return {name: value for name, value in os.environ.items() if name not in INHERITED} | dict(env)


def with_uv(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that runs uv, which `make setup` installs where it is missing."""
    return outside(env) | {"PATH": f"{os.environ['PATH']}:{PROJECT_ROOT / '.tools' / 'uv' / 'bin'}"}


def set_up(commit: str, tree: Path) -> Release:
    """Set up the release of a commit in an empty directory, as its users do: Python and jars are those of its locks."""
    if git("cat-file", "-e", commit).returncode:
        fetched = git("fetch", "--quiet", "--depth", "1", "origin", commit)
        assert fetched.returncode == 0, f"commit {commit} is missing: run `git fetch --unshallow`. {fetched.stderr!r}"
    subprocess.run(["tar", "--extract"], input=git("archive", commit).stdout, cwd=tree, check=True)
    # A jar of another hash is fetched all the same.
    for folder in TARGET.iterdir():
        if folder.is_dir():
            shutil.copytree(folder, tree / TARGET.relative_to(PROJECT_ROOT) / folder.name)
    made = subprocess.run(["make", "setup"], cwd=tree, env=with_uv({}), capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
    return Release(tree)


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=PROJECT_ROOT, capture_output=True, check=False)
