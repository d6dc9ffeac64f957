"""dbt's manifest with compiled SQL, made without a warehouse.

The project is compiled in a copy in which macros that ask a warehouse are replaced by their stand-ins for sqlfluff
(.sqlfluff), which give SQL of the same shape. `masked()` and everything else of macros/pii is the real thing.
"""

import configparser
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import yaml

from python_common import private_files
from python_common.config.environment import PROJECT_ROOT, home
from python_common.errors import UserError
from python_dbt.manifest import DbtManifest, Node, load

STAND_INS = "sqlfluff:templater:jinja:macros"
WAREHOUSE_CALL = re.compile(r"\brun_query\b|\badapter\.")
MACRO = re.compile(r"{%-?\s*macro\s+(\w+)")
ORIGINAL = "original_"
# By what dbt calls the file of a parsed project.
PARSED = "partial_parse.msgpack"
HOOKS = ("on-run-start", "on-run-end")
COPIED = ("models", "seeds", "snapshots", "tests/data")
# Importing dbt takes seconds, in which the project is copied.
DBT = "import dbt.adapters.spark, dbt.cli.main; input(); dbt.cli.main.cli()"


class NotCompiled(UserError):
    """dbt cannot compile the project; `parsed` is its manifest without compiled SQL, empty if it cannot parse it."""

    parsed = DbtManifest({}, {}, {})


def cached_manifest(project: Path, commit: str = "") -> DbtManifest:
    """Return a compiled manifest as `compiled_manifest` does, of which dbt parses only what differs from the last one.

    For the last `commit` that was given, dbt does not run, if its version and the weeks are the same.
    """
    deciding = (
        commit,
        os.environ["LAKEHOUSE_WEEKS"],
        Path(__file__).read_text(),
        (PROJECT_ROOT / "uv.lock").read_text(),
    )
    state = hashlib.sha256("\n".join(deciding).encode()).hexdigest() if commit else ""
    return compiled_manifest(project, private_files.directory(home() / "review-cache"), state)


def compiled_manifest(project: Path, cache: Path | None = None, state: str = "") -> DbtManifest:
    """Return the manifest of a dbt project, compiled; a NotCompiled quotes dbt if it cannot.

    In the directory `cache` dbt finds the project as parsed last, and parses what differs. It also keeps the manifest
    of the last `state` of a project that has a name: for that one dbt does not run.
    """
    former = cache / f"{state}.json" if cache and state else None
    with tempfile.TemporaryDirectory(prefix="lakehouse-pii-") as name:
        copy = Path(name)
        file, parsed = copy / "target" / "manifest.json", copy / "target" / PARSED
        if former and former.is_file():
            return _completed(load(former), *_copy(project, copy))
        dbt = subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", DBT, "--no-use-colors", "--quiet", "compile", "--no-populate-cache"),
                *("--profiles-dir", project, "--target-path", copy / "target", "--log-level-file", "none"),
                # It renders Jinja, for which more threads only wait for each other.
                *("--threads", "1"),
            ],
            cwd=copy,
            # Nothing listens there: a macro without stand-in fails at once instead of asking some warehouse.
            env={**os.environ, "LAKEHOUSE_THRIFT_HOST": "127.0.0.1", "LAKEHOUSE_THRIFT_PORT": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with dbt, ExitStack() as unfinished:
            unfinished.callback(dbt.kill)
            operations, replaced = _copy(project, copy)
            if cache and (cache / PARSED).is_file():
                parsed.parent.mkdir()
                shutil.copy(cache / PARSED, parsed)
            output, _ = dbt.communicate("\n")
        if dbt.returncode:
            error = NotCompiled(
                f"dbt cannot compile the project without a warehouse:\n{output.strip()}\n",
                "Correct it; a macro that asks the warehouse needs a stand-in in .sqlfluff",
            )
            error.parsed = load(file) if file.is_file() else error.parsed
            raise error
        if cache:
            private_files.write(cache / PARSED, parsed.read_bytes())
        if cache and former:
            for other in cache.glob("*.json"):
                other.unlink(missing_ok=True)
            private_files.write(former, file.read_bytes())
        return _completed(load(file), operations, replaced)


def _completed(manifest: DbtManifest, operations: list[Node], replaced: set[str]) -> DbtManifest:
    """Add the project's hooks, and the originals of replaced macros."""
    manifest.nodes.update((operation.unique_id, operation) for operation in operations)
    macros = {macro.name: unique_id for unique_id, macro in manifest.macros.items()}
    for name in replaced:
        original = manifest.macros.pop(macros[ORIGINAL + name])
        text = original.macro_sql.replace(ORIGINAL + name, name, 1)
        manifest.macros[macros[name]] = replace(original, name=name, macro_sql=text, has_stand_in=True)
    return manifest


def _copy(project: Path, copy: Path) -> tuple[list[Node], set[str]]:
    """Copy what is compiled, and return the project's hooks, which are excluded, and the names of replaced macros.

    The original of a replaced macro gets another name, for the check of what it sends to a warehouse.
    """
    for name in COPIED:
        if (project / name).is_dir():
            shutil.copytree(project / name, copy / name)
    config = configparser.ConfigParser(interpolation=None)
    config.read(project / ".sqlfluff")
    stand_ins = dict(config[STAND_INS])
    used = set()
    for file in sorted((project / "macros").rglob("*.sql")):
        text = file.read_text()
        replaced = set(MACRO.findall(text)) & stand_ins.keys() if WAREHOUSE_CALL.search(text) else set()
        for name in replaced:
            text = re.sub(rf"({{%-?\s*macro\s+)(?={name}\b)", rf"\1{ORIGINAL}", text)
        used |= replaced
        target = copy / file.relative_to(project)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (copy / "macros" / "stand_ins.sql").write_text("\n".join(stand_ins[name] for name in sorted(used)))
    settings = yaml.safe_load((project / "dbt_project.yml").read_text())
    hooks = {name: settings.pop(name, None) or [] for name in HOOKS}
    (copy / "dbt_project.yml").write_text(yaml.safe_dump(settings))
    return _operations(hooks), used


def _operations(hooks: dict[str, str | list[str]]) -> list[Node]:
    """Return the project's hooks as dbt has them in a manifest; it would run them even to compile."""
    return [
        Node(f"operation.{name}.{position}", "operation", f"{name}-{position}", schema="", raw_code=sql)
        for name, sqls in hooks.items()
        for position, sql in enumerate([sqls] if isinstance(sqls, str) else sqls)
    ]
