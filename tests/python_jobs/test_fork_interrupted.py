"""`lakehouse fork` killed at each step: what is left does not look complete, and the next command removes it."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from typer.testing import CliRunner

from python_common import private_files
from python_common.catalog.catalog import load_catalog, make_namespace
from python_common.config.environment import read_env_file
from python_common.config.settings import Settings
from python_common.errors import DeadlineError, UserError
from python_common.locks import lease, lock
from python_common.locks.lock import locked
from python_dev.stack import stack
from python_export.notify import outbox
from python_jobs import fork, fork_catalog
from python_jobs.commands import fork as commands
from tests.support.kills import POINTS, killed_at

DAY = timedelta(hours=24)


# A fork that is killed before its server starts is one.
*STEPS_OF_CREATE, SERVER = POINTS["fork created"]


@pytest.fixture
def production(offline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A lake with two tables that have rows."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    settings = offline_settings.changed(home=tmp_path)
    catalog = load_catalog(settings, create=True)
    make_namespace(catalog, "shop")
    rows = pa.table({"id": [1]})
    for name in ("shop.orders", "shop.items"):
        catalog.create_table(name, rows.schema).append(rows)
    return settings


@pytest.fixture
def catalog(production: Settings) -> Catalog:
    return load_catalog(production)


def create(production: Settings, name: str = "mine", lives: timedelta = DAY) -> fork.Fork:
    """Create a fork, up to the start of its server."""
    killed_at("fork created", SERVER, fork.create, production, name, lives)
    [made] = [one for one in fork.forks(production) if one.name == name]
    return made


def test_a_fork_and_its_end_are_two_commits_per_table(production: Settings, catalog: Catalog) -> None:
    with lease.alone(catalog, "weekly", "an earlier command"):
        pass

    def commits() -> dict[str, int]:
        names = ("shop.orders", "shop.items", lease.TABLE.identifier)
        return {name: len(catalog.load_table(name).metadata.metadata_log) for name in names}

    counts = [commits()]
    create(production)
    counts.append(commits())
    fork.drop(production, "mine")
    counts.append(commits())
    made, dropped = ({name: new[name] - old[name] for name in old} for old, new in pairwise(counts))
    # The lease is taken and given back.
    assert made == {"shop.orders": 1, "shop.items": 1, lease.TABLE.identifier: 3}
    assert dropped == dict.fromkeys(made, 1)


@pytest.mark.parametrize("point", STEPS_OF_CREATE)
def test_what_a_killed_create_leaves_is_no_fork(point: str, production: Settings, catalog: Catalog) -> None:
    killed_at("fork created", point, fork.create, production, "killed", DAY)
    assert (fork.forks(production), len(fork_catalog.tags(catalog))) == ([], 1)
    made = create(production)
    assert [path.name for path in made.directory.parent.iterdir()] == ["mine"]
    assert fork_catalog.tags(catalog) == [made.tag]


@pytest.mark.parametrize("point", POINTS["fork dropped"])
def test_what_a_killed_drop_leaves_is_no_fork(point: str, production: Settings, catalog: Catalog) -> None:
    """The same command removes it; `create` does as after a killed one, for both leave hidden directories."""
    create(production)
    killed_at("fork dropped", point, fork.drop, production, "mine")
    assert fork.forks(production) == []
    fork.drop(production, "mine")
    assert ([*fork.forks_directory(production).iterdir()], fork_catalog.tags(catalog)) == ([], [])


def test_forks_of_two_homes_have_separate_tags(
    production: Settings, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = production.changed(home=tmp_path / "other")
    mine, others = create(production), create(other)
    assert fork_catalog.tags(catalog) == sorted([mine.tag, others.tag])
    monkeypatch.setattr(commands, "from_environment", lambda: production)
    [listed] = json.loads(CliRunner().invoke(commands.app, ["list", "--json"]).output)
    assert (listed["fork"], listed["tag"]) == ("mine", mine.tag)
    line = f"fork mine (tag {others.tag}) is of another LAKEHOUSE_HOME: `lakehouse fork drop mine` there"
    assert fork.drop_all(production) == [line]
    assert fork_catalog.tags(catalog) == [others.tag]


def test_an_erasure_drops_forks_and_names_other_directories(
    production: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    made = create(production)
    for name in ("mine.bak", "mine_copy"):
        shutil.copytree(made.directory, made.directory.with_name(name))
    made.directory.with_name("latest").symlink_to(made.directory)
    assert fork.forks(production) == [made]
    fork.drop(production, "mine_copy")
    assert (fork.forks(production), fork_catalog.tags(catalog)) == ([made], [made.tag])
    shutil.copytree(made.directory, made.directory.with_name("mine_copy"))
    capsys.readouterr()
    left = [made.directory.with_name(name) for name in ("latest", "mine.bak")]
    assert fork.drop_all(production) == [f"{path} is not a fork: delete it" for path in left]
    dropped = capsys.readouterr().out.splitlines()
    assert dropped == [f"fork {name} had the same rows: it is dropped" for name in ("mine", "mine_copy")]
    assert (sorted(made.directory.parent.iterdir()), fork_catalog.tags(catalog)) == (left, [])


def test_what_a_program_wrote_into_a_dropped_fork_is_deleted(production: Settings) -> None:
    directory = fork.forks_directory(production)
    for command in (lambda: fork.drop(production, "mine"), lambda: fork.drop_all(production)):
        private_files.write(private_files.directory(directory / "mine") / "rows", "of a person")
        command()
        assert [*directory.iterdir()] == []


def test_an_expired_fork_is_removed_by_the_next_create(production: Settings, catalog: Catalog) -> None:
    made = create(production)
    assert datetime.fromisoformat(made.expires_at) - datetime.fromisoformat(made.made_at) == DAY
    assert catalog.load_table("shop.orders").refs()[made.tag].max_ref_age_ms == DAY.total_seconds() * 1000
    old = create(production, "old", timedelta(hours=1))
    [facts] = fork.forks_directory(production).glob(f"old/{fork.FACTS_FILE}")
    facts.write_text(facts.read_text().replace(old.expires_at, made.made_at))
    create(production, "new")
    assert [one.name for one in fork.forks(production)] == ["mine", "new"]


def test_a_fork_has_no_leases_and_notifies_nobody(production: Settings, catalog: Catalog) -> None:
    with lease.leased(catalog, "weekly", "test"):
        pass
    entry = outbox.Entry("k", outbox.NOTICE, None, None, None, None, None, datetime.now(UTC), "pending", "pending")
    outbox.TABLE.change(catalog, lambda _: {"k": entry})
    made = create(production)
    for table in (lease.TABLE, outbox.TABLE):
        assert table.rows(catalog)
        assert table.rows(load_catalog(made.settings)) == {}
    variables = read_env_file(made.env_file)
    assert [variables[name] for name in fork.DISABLED_VARIABLES] == [""] * len(fork.DISABLED_VARIABLES)
    assert made.settings.pii_key_file == production.pii_key_file


def test_bad_names_and_forks_of_forks_are_refused(production: Settings, tmp_path: Path) -> None:
    made = create(production)
    (tmp_path / stack.MARK).touch()
    for refused, message in (
        (lambda: fork.create(production, "mine", DAY), "There is a fork mine already"),
        (lambda: fork.create(production, "../x", DAY), "'../x' is not a fork name"),
        (lambda: fork.drop(production, "other"), "There is no fork other. There are: mine"),
        (lambda: fork.create(made.settings, "inner", DAY), "is a fork itself"),
        (stack.wipe, "There are forks: mine"),
    ):
        with pytest.raises(UserError) as error:
            refused()
        assert message in str(error.value)


def test_a_fork_waits_for_a_build(production: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "WAIT_SECONDS", 1.0)
    with locked("weekly"), pytest.raises(DeadlineError, match="Another weekly has not ended"):
        fork.create(production, "mine", DAY)
    assert fork.forks(production) == []
