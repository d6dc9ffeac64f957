"""Steps of `lakehouse review` that need no service: what is compared of tables and settings, and its exit code."""

import os
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.errors import DeadlineError, UserError
from python_common.locks import lock
from python_common.locks.lock import locked
from python_dbt.manifest import DbtManifest, Node
from python_dbt.project import Project
from python_dev.commands import review as command
from python_dev.review import build, scope
from python_dev.review import run as job
from python_dev.review.contracts import Finding
from python_dev.review.cost import Cost, QueryPlan
from python_dev.review.quick import QuickReview
from python_dev.review.report import Review, TableReport
from python_dev.review.table_diff import TableChange
from tests.support.kills import killed_at
from tests.support.reviewed import SALES, sides_of_change
from tests.support.small_project import git


def project(directory: Path, **files: str) -> scope.Side:
    """Write settings of a project without models."""
    for file, content in {"dbt_project.yml": "name: shop", **files}.items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(content)
    return scope.side(DbtManifest(), directory)


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        ("conf/spark-defaults.conf", "spark.sql.ansi.enabled false", "conf/spark-defaults.conf"),
        ("profiles.yml", "shop: {target: dev}", "profiles.yml"),
        ("dbt_project.yml", "{name: shop, flags: {populate_cache: true}}", "flags of dbt_project.yml"),
    ],
)
def test_settings_that_decide_on_all_nodes_are_to_be_looked_at(
    file: str, content: str, name: str, tmp_path: Path
) -> None:
    before, after = project(tmp_path / "before"), project(tmp_path / "after", **{file: content})
    for one, other in ((before, after), (after, before)):
        of_code = job._of_code(one, other, "abc", Project(tmp_path, {}), is_static=True)
        assert ([(finding.severity, finding.object) for finding in of_code.findings]) == [("look", name)]
    assert job._of_code(after, after, "abc", Project(tmp_path, {}), is_static=True).verdict == "clean"


HISTORY = Node("snapshot.shop.history", "snapshot", "history", "marts", materialized="snapshot")


def test_a_snapshot_that_is_made_of_what_changes_is_named() -> None:
    history = replace(HISTORY, parents=[SALES.unique_id])
    of_code = job._of_code(*sides_of_change(history), "abc", Project(Path(), {}), is_static=False)
    assert ("note", "history") in {(finding.severity, finding.object) for finding in of_code.findings}
    assert of_code.not_compared == {}


@pytest.mark.parametrize(
    ("history", "not_compared"),
    [([], []), ([HISTORY], []), ([replace(HISTORY, compiled_code="select 2")], ["history"])],
    ids=["added", "as it was", "changed"],
)
def test_only_a_change_of_its_own_makes_a_snapshot_undecided(history: list[Node], not_compared: list[str]) -> None:
    before = scope.Side(DbtManifest({node.unique_id: node for node in (SALES, *history)}), {})
    after = scope.Side(DbtManifest({node.unique_id: node for node in (SALES, HISTORY)}), {})
    of_code = job._of_code(before, after, "abc", Project(Path(), {}), is_static=False)
    assert [*of_code.not_compared] == not_compared


@pytest.mark.parametrize(
    ("config", "change"),
    [
        ({"partition_by": "week"}, "partition_by None becomes week"),
        ({"materialized": "view"}, "materialized None becomes view"),
        ({"tblproperties": {"a": "b"}}, "tblproperties.a None becomes b"),
    ],
)
def test_another_layout_is_named_though_no_row_changes(config: dict[str, object], change: str) -> None:
    sides = [scope.Side(DbtManifest({SALES.unique_id: replace(SALES, config=one)}), {}) for one in ({}, config)]
    of_code = job._of_code(*sides, "abc", Project(Path(), {}), is_static=False)
    assert of_code.findings == [Finding("note", "sales", f"config {change}")]
    assert of_code.verdict == "clean"


def test_plans_of_both_sides_and_costs_are_compared() -> None:
    plans = [{SALES.unique_id: QueryPlan(Counter(Exchange=shuffles), {})} for shuffles in (0, 1)]
    costs = {SALES.unique_id: (Cost(cpu_ns=1), Cost(cpu_ns=9_000_000_000))}
    for before, after, of_nodes, expected in (
        (*plans, {}, ["a shuffle is new"]),
        (*plans, costs, ["a shuffle is new", "CPU seconds more than double"]),
        ({}, plans[1], {}, []),
    ):
        assert [one.partition(" (")[0] for one in build._worse(SALES, before, after, of_nodes)] == expected


@pytest.mark.parametrize(
    ("after", "message"), [("another", ["unit test changed"]), (None, ["unit test removed"]), ("same", [])]
)
def test_a_unit_test_that_is_changed_or_removed_is_named(after: str | None, message: list[str]) -> None:
    test = Node("unit_test.shop.sales.edge", "unit_test", "edge", "marts", checksum="same", parents=[SALES.unique_id])
    tests = [{test.unique_id: test}, {test.unique_id: replace(test, checksum=after)} if after else {}]
    sides = [scope.Side(DbtManifest({SALES.unique_id: SALES}, unit_tests=of_side), {}) for of_side in tests]
    of_code = job._of_code(*sides, "abc", Project(Path(), {}), is_static=True)
    assert [finding.message for finding in of_code.findings] == message


@pytest.fixture
def repository(tmp_path: Path) -> Project:
    """A commit of a project."""
    directory = tmp_path / "project"
    project(directory)
    git(directory, "init", "--quiet")
    git(directory, "add", "--all")
    git(directory, "commit", "--message", "First")
    return Project(directory, {**os.environ})


def test_changed_files_that_no_review_reads_are_not_named(repository: Project) -> None:
    files = ("python_ingest/batch.py", "python_ingest/new.py", "docs/a b.md", "models/sales.sql", "conf/other.conf")
    for file in files:
        (repository.directory / file).parent.mkdir(exist_ok=True)
        (repository.directory / file).write_text("first")
    git(repository.directory, "add", "--all")
    git(repository.directory, "commit", "--message", "Second")
    (repository.directory / "README.md").write_text("not committed")
    [finding] = job._not_reviewed(repository, "HEAD~1")
    folders = "README.md, conf, docs, python_ingest"
    assert finding == Finding("note", f"{folders} changed", "5 files, not reviewed here")
    git(repository.directory, "add", "--all")
    git(repository.directory, "commit", "--message", "Third")
    assert [*job._not_reviewed(repository, "HEAD")] == []


@pytest.mark.parametrize("is_repository", [True, False])
def test_an_unknown_base_is_refused_before_compiling(
    is_repository: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No repository above the directory counts.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    if is_repository:
        git(tmp_path, "init", "--quiet")
    with pytest.raises(UserError, match=r"git merge-base failed .*Give a branch, tag or commit that git knows"):
        job.review(None, Project(tmp_path, {}), "no-such-branch", 4)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".git"] == []


def test_a_review_waits_for_another_one_of_its_home(
    repository: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setattr(lock, "WAIT_SECONDS", 1.0)
    with locked("review"), pytest.raises(DeadlineError, match="Another review has not ended within 1 s"):
        job.review(None, repository, "HEAD", 4)


def test_what_a_killed_review_left_is_deleted(
    repository: Project, offline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the next one builds: its fork, too."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    settings = offline_settings.changed(home=tmp_path)
    load_catalog(settings, create=True)
    (tmp_path / "forks" / "review" / "rows").mkdir(parents=True)
    for _ in range(2):
        killed_at("review", "while it compiles", job.review, settings, repository, "HEAD", 4)
        assert [path.name for path in tmp_path.glob("review/*/*")] == ["dbt_project.yml"]
    assert [*tmp_path.glob("forks/*")] == []

    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "compiled_manifest", interrupt)
    with pytest.raises(KeyboardInterrupt):
        job.review(settings, repository, "HEAD", 4)
    assert [*(tmp_path / "review").iterdir()] == []


LOOK = TableReport("sales", TableChange(9, 9, changed=1))


@pytest.mark.parametrize(
    ("fields", "text", "code"),
    [
        ({}, None, 0),
        ({"tables": [LOOK]}, None, 10),
        ({"tables": [LOOK]}, "review-accept: sales rows<=1 rounding", 0),
        ({"tables": [LOOK]}, "review-accept: sales", 1),
        ({"findings": [Finding("breaking", "sales.id", "column removed")]}, None, 11),
        ({"not_compared": {"sales": "its build failed"}}, None, 12),
    ],
)
def test_the_exit_code_is_the_verdict_after_acceptances(
    fields: dict[str, Any], text: str | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A review of each kind takes minutes; here it is done. One of code alone needs no variable of a lake."""
    empty = {"scope": scope.ReviewScope(), "findings": [], "names": {}, "exposures": {}}
    reviewed = Review("abc", "def", False, **{**empty, **fields})
    monkeypatch.setattr(job, "review", lambda *_: reviewed)
    monkeypatch.setattr(command, "PROJECT_ROOT", tmp_path)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    (tmp_path / "pull-request").write_text(text or "")
    former = tmp_path / "target" / "review" / "review.md"
    former.parent.mkdir(parents=True)
    former.write_text("of an earlier change")
    arguments = ["--accept", str(tmp_path / "pull-request")] if text else []
    ended = CliRunner().invoke(command.app, ["--static", *arguments])
    assert (ended.exit_code, isinstance(ended.exception, UserError)) == (code, code == 1)
    monkeypatch.setattr(job, "review", lambda *_: QuickReview(**vars(reviewed)))
    monkeypatch.setattr(command, "_compiling", lambda *_: nullcontext())
    quick = CliRunner().invoke(command.app, ["--quick", *arguments])
    assert (quick.exit_code, "run the full review before merging" in quick.output) == (code, code == 0)
    if code == 1:
        assert not former.exists()
    else:
        assert former.read_text().startswith("<!-- lakehouse review -->")


def test_a_quick_review_has_no_option_of_a_lake() -> None:
    for option in ("--static", "--samples", "--cost"):
        assert CliRunner().invoke(command.app, ["--quick", option]).exit_code == 2
    for arguments in (["--from-lake"], ["--base", ""], ["--static", "--base", ""]):
        assert CliRunner().invoke(command.app, arguments).exit_code == 2
