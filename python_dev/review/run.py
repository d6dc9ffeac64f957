"""`lakehouse review`: what a change of the project does, in comparison with the commit that it began at.

Without data: both sides are compiled, and their code and declarations compared. With data: in a fork of the lake the
code before the change builds what the change can reach, then the changed code does, from the same input; the tables of
both are compared. Nothing of production changes but the tags of the fork and the lease that it takes.
"""

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from python_common import private_files
from python_common.config.environment import home
from python_common.errors import UserError
from python_common.locks.lock import locked
from python_dbt.compile import COPIED, NotCompiled, cached_manifest, compiled_manifest
from python_dbt.manifest import REFERENCED, DbtManifest
from python_dbt.project import Project
from python_dev.review import contracts, quick, scope
from python_dev.review.contracts import Finding, Proof
from python_dev.review.report import Review
from python_dev.review.scope import Side

if TYPE_CHECKING:
    from python_common.config.settings import Settings

# What both sides are made of.
REVIEWED = (*(f"{name}/" for name in (*COPIED, "macros")), "dbt_project.yml", *scope.SETTINGS)


def review(
    settings: "Settings | None",
    project: Project,
    base: str,
    weeks: int,
    with_samples: bool = False,
    with_costs: bool = False,
    landed: Path | None = None,
    compiling: Future[DbtManifest] | None = None,
) -> Review:
    """Review the project's directory, uncommitted changes included, in comparison with its merge base with `base`.

    Of exported tables the newest `weeks` weeks are compared. Samples have no personal data, not even masked. Costs need
    a build of both sides in full. A quick review reads the rows in `landed`; without settings too, code alone is
    reviewed. `compiling` gives the project, if it is being compiled already. A change that does not compile is
    breaking. Raises a UserError if the code before it cannot be compiled.
    """
    is_static = settings is None and landed is None
    commit = _git(project, "merge-base", base, "HEAD").decode().strip()
    scratch = home() / "review"
    with locked("review"):
        # Of a killed review.
        private_files.delete(scratch)
        if settings:
            # Importing Spark and the catalog takes seconds, and a review of code needs neither.
            from python_dev.review import build  # noqa: PLC0415

            build.drop(settings)
        with tempfile.TemporaryDirectory(dir=private_files.directory(scratch)) as name:
            old = Path(name)
            with tarfile.open(fileobj=io.BytesIO(_git(project, "archive", "--format=tar", commit))) as archive:
                # Python 3.11.2 has no argument `filter`, and ignores this. Git stores no path out of the directory.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(old)  # noqa: S202
            with ThreadPoolExecutor() as pool:
                of_base = (cached_manifest, old, commit) if landed else (compiled_manifest, old)
                compiled = [pool.submit(*of_base), compiling or pool.submit(compiled_manifest, project.directory)]
                built = quick.build(compiled[0].result(), old, landed) if landed else None
                former = contracts.proven(compiled[0].result()) if landed else None
            before = scope.side(compiled[0].result(), old)
            try:
                after = scope.side(compiled[1].result(), project.directory)
            except UserError as error:
                parsed = error.parsed if isinstance(error, NotCompiled) else DbtManifest()
                # dbt's own words, without what came before them.
                reason = " ".join(error.message.split()).rpartition("Encountered an error: ")[2]
                broken = [
                    *contracts.declared_classes(before.manifest, parsed),
                    Finding("breaking", "the changed project", f"does not compile: {reason}"),
                    *_unmade(before.manifest, project),
                ]
                return Review(commit, project.commit() or "unknown", is_static, scope.ReviewScope(), broken, {}, {})
            of_code = _of_code(before, after, commit, project, is_static, former)
            of_code = replace(of_code, findings=[*of_code.findings, *_not_reviewed(project, commit)])
            if built:
                return quick.review(of_code, *built, quick.Places(after.manifest, project.directory))
            has_work = any(of_code.scope.tests(one.manifest) for one in (before, after)) or of_code.scope.reached
            if settings is None or not has_work:
                return of_code
            projects = Project(old, project.env), project
            try:
                return build.of_data(of_code, settings, projects, (before, after), weeks, with_samples, with_costs)
            finally:
                build.drop(settings)


def _git(project: Project, *arguments: str) -> bytes:
    try:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=project.directory, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise UserError("git is missing", "Install git: a review compares with a former commit") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().partition("\n")[0]
        remedy = "Give a branch, tag or commit that git knows"
        raise UserError(f"git {arguments[0]} failed ({reason})", remedy) from None


def _unmade(before: DbtManifest, project: Project) -> Iterator[Finding]:
    """Yield the exposures that are made of deleted files; of all that is missing dbt names the first."""
    for exposure in before.exposures.values():
        behind = [before.nodes.get(name) for name in (*exposure.parents, *before.ancestors(*exposure.parents))]
        files = {node.original_file_path for node in behind if node and node.resource_type in REFERENCED}
        if gone := sorted(file for file in files if not (project.directory / file).exists()):
            yield Finding("breaking", exposure.label or exposure.name, f"made of {', '.join(gone)}, which is deleted")


def _of_code(
    before: Side, after: Side, commit: str, project: Project, is_static: bool, former: Proof | None = None
) -> Review:
    compared = scope.compare(before, after)
    nodes = {**before.manifest.nodes, **after.manifest.nodes}
    sources = {**before.manifest.sources, **after.manifest.sources}
    unit_tests = {**before.manifest.unit_tests, **after.manifest.unit_tests}
    checksums = ({name: test.checksum for name, test in side.manifest.unit_tests.items()} for side in (before, after))
    stale = sorted(scope.of_the_moment(compared, before, after))
    layouts: dict[str, list[str]] = {}
    for name in sorted(compared.built & compared.changed.keys()):
        if compared.changed[name].startswith(scope.CONFIG):
            layouts.setdefault(compared.changed[name], []).append(nodes[name].name)
    exposures = {**before.manifest.exposures, **after.manifest.exposures}.values()
    return Review(
        base=commit,
        change=project.commit() or "unknown",
        is_static=is_static,
        scope=compared,
        findings=[
            *contracts.findings(before.manifest, after.manifest, former),
            *(
                Finding("look", nodes[name].name, f"test changed: {compared.changed[name]}")
                for name in sorted(compared.own - compared.built)
            ),
            *(
                Finding("look", test.name, f"unit test {'changed' if name in after.manifest.unit_tests else 'removed'}")
                for name in contracts.differing(*checksums)
                if (test := before.manifest.unit_tests.get(name))
            ),
            *(
                Finding("look", name, "changed: it is for all nodes, and what it does to them is not compared")
                for name in contracts.differing(before.settings, after.settings)
            ),
            *(Finding("note", contracts.few(names), reason) for reason, names in layouts.items()),
            *(Finding("note", name, "macro changed, which no node calls") for name in compared.uncalled),
            *(
                Finding("note", nodes[name].name, f"made of what changes, and not compared: {scope.TIME_DEPENDENT}")
                for name in stale
                if name in compared.affected
            ),
        ],
        names={unique_id: node.name for unique_id, node in {**sources, **nodes, **unit_tests}.items()},
        exposures={
            exposure.label or exposure.name: [nodes[name].name for name in exposure.parents if name in compared.reached]
            for exposure in exposures
            if compared.reached & {*exposure.parents}
        },
        sql={
            nodes[name].name: (_compiled(before, name), _compiled(after, name))
            for name in sorted({*compared.own, *compared.added, *compared.removed})
        },
        not_compared={
            nodes[name].name: scope.TIME_DEPENDENT for name in stale if name in compared.own and not is_static
        },
    )


def _not_reviewed(project: Project, commit: str) -> Iterator[Finding]:
    """Yield the folders with changed files that no part of a review reads."""
    listed = (
        _git(project, "diff", "--name-only", "--relative", "-z", commit),
        _git(project, "ls-files", "-oz", "--exclude-standard"),
    )
    files = {file for names in listed for file in names.decode().split("\0") if file}
    others = sorted(file for file in files if not file.startswith(REVIEWED))
    if others:
        folders = ", ".join(dict.fromkeys(file.partition("/")[0] for file in others))
        count = f"{len(others)} file{'s' * (len(others) > 1)}"
        yield Finding("note", f"{folders} changed", f"{count}, not reviewed here")


def _compiled(side: Side, name: str) -> str:
    return (side.manifest.nodes[name].compiled_code or "") if name in side.manifest.nodes else ""
