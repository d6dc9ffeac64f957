"""A lake of release 0.6 is upgraded as in docs/upgrading.md, goes back once, and is upgraded again.

The tests of this module run in order and share a separate lake: what is tested is a history.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import env_file, home, read_env_file
from python_common.config.settings import from_environment
from python_common.process import free_ports
from python_dev.stack import stack
from python_dev.stack.temporary import own_environment
from python_export.notify import outbox
from python_export.publishing import hold
from python_ingest.maintenance import receipts
from python_jobs.weekly import history
from tests.support.commands import run_lakehouse, started
from tests.support.lake import Lake, succeed
from tests.support.release import Release, set_up
from tests.support.services.interpreted import INTERPRETED

pytestmark = [pytest.mark.xdist_group("upgrade"), pytest.mark.slow, pytest.mark.timeout(3600)]

RELEASE = "eb7cd5e2a5597427379a59a88cc5d46d19f99efe"
# As many weeks as a hold compares a week with, and that week.
SIZE = ("--orders", "60", "--weeks", str(hold.FEWEST + 1))
# The variables of 0.6 for the ports that this release has in its addresses.
PORTS = {"kafka": "LAKEHOUSE_KAFKA_PORT", "registry": "LAKEHOUSE_REGISTRY_PORT", "mail": "LAKEHOUSE_MAIL_PORT"}
# A factor that the rows of two random weeks exceed.
HOLD, STRICT_HOLD = "hold: {rows: 3, line_amount: 3}", "hold: {line_amount: 1.000001}"
KILLED_ERASURE = """
import os, signal
from python_jobs.cli import main
from python_jobs.erase.job import Erasure
Erasure._rebuild = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main()
"""
# Who ordered last, in the week that both export roots have.
CUSTOMER = """
    select customerid from rows where status = 'Completed' and orderdate < timestamp '{end:%Y-%m-%d}'
    order by orderdate desc, customerid limit 1
"""


@dataclass
class OldLake(Lake):
    """A lake that the former release left, and what is unfinished in it."""

    erase: tuple[str, ...]
    held: hold.Hold
    # The published versions: those in the export root, and in another one that the lake was published to before.
    published: set[str]
    elsewhere: Path
    # Those of both that hold the person who is erased, by address.
    holding: set[str]

    def pending(self) -> set[str]:
        """Return the versions in the export root that a channel has not delivered yet."""
        entries = outbox.entries(load_catalog(self.settings))
        return {entry.path for entry in entries if entry.is_pending and entry.export_root == self.settings.export_root}

    def addresses(self, paths: set[str]) -> set[str]:
        return {f"{self.settings.export_root}/{path}" for path in paths}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return set_up(RELEASE, tmp_path_factory.mktemp("release-0.6"))


def expect(code: int, finished: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a command that must end with an exit code."""
    assert finished.returncode == code, finished.stdout[-4000:] + finished.stderr[-4000:]
    return finished.stdout + finished.stderr


@pytest.fixture(scope="module")
def lake(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldLake]:
    """A lake that the former release has filled, and published without mail; a run and an erasure were killed."""
    export = release.tree / "models" / "exports" / "exp_weekly__order_lines.yml"
    text = export.read_text()
    assert HOLD in text
    with own_environment(tmp_path_factory.mktemp("lake-0.6")):
        os.environ.update({**INTERPRETED, "LAKEHOUSE_NOTIFY_TIMEOUT": "1s"})
        os.environ["LAKEHOUSE_KAFKA_CONTROLLER_PORT"] = str(free_ports(1)[0])
        os.environ.update({variable: str(stack.port(service, os.environ)) for service, variable in PORTS.items()})
        try:
            expect(0, release.lakehouse("stack", "up"))
            expect(0, release.lakehouse("stack", "sample-data", *SIZE))
            expect(0, release.lakehouse("stack", "down", "--only", "mail"))
            os.environ.update(read_env_file(env_file()))
            old = Lake(from_environment())
            catalog, week = load_catalog(old.settings), old.last_week
            expect(3, release.lakehouse("weekly", "--weeks", f"{week.minus(hold.FEWEST)}..{week.minus(1)}"))
            other = home() / "other-exports"
            expect(3, release.lakehouse("export", "run", "customer_activity", LAKEHOUSE_EXPORT_ROOT=str(other)))
            export.write_text(text.replace(HOLD, STRICT_HOLD))
            expect(-signal.SIGKILL, release.python("-m", "tests.support.killed", "report", "after all other steps"))
            export.write_text(text)
            [(customer,)] = old.query("bronze.shiftleft_public_orders", CUSTOMER.format(end=week.end))
            erase = ("erase", "--subject", f"shop.customer={customer}", "--published")
            expect(-signal.SIGKILL, release.python("-c", KILLED_ERASURE, *erase))
            expect(0, release.lakehouse("stack", "down"))
            [held], [receipt] = hold.unapproved(catalog).values(), receipts.every(catalog)
            yield OldLake(old.settings, erase, held, old.versions(), other, {*receipt.versions})
        finally:
            run_lakehouse("stack", "down", "--wipe")


def test_the_former_release_leaves_all_kinds_of_unfinished_work(lake: OldLake) -> None:
    catalog, held = load_catalog(lake.settings), f"order_lines/{lake.last_week}/v1"
    assert lake.held.address == f"{lake.settings.export_root}/order_lines/{lake.last_week}"
    assert (held in lake.published, len(lake.published)) == (False, 5 * (hold.FEWEST + 1) - 1)
    assert lake.pending() and lake.pending() < lake.published
    assert [run.outcome for run in history.runs(catalog)] == ["notification failed", "running"]
    assert {Path(address).parents[2] for address in lake.holding} == {Path(lake.settings.export_root), lake.elsewhere}
    assert len(receipts.unfinished(catalog)) == 1


def test_an_upgrade_restates_no_week_and_finishes_the_work(lake: OldLake) -> None:
    week = str(lake.last_week)
    lake.settings = started()
    approve = ("order_lines", "--week", week, "--sha256", lake.held.sha256[:12], "--reason", "checked")
    done = succeed(
        {
            "approve": lambda: run_lakehouse("export", "approve", *approve),
            "weekly": lambda: run_lakehouse("weekly", "--week", week, "--full-refresh"),
            "erase": lambda: run_lakehouse(*lake.erase),
        }
    )
    assert "0 new records of 8 topics" in done["weekly"].stderr
    catalog = load_catalog(lake.settings)
    replaced = {path.replace("/v1", "/v2") for path in lake.published if lake.addresses({path}) & lake.holding}
    new = lake.versions() - lake.published
    # The weeks of the erased person alone, whose orders are missing in their sums too, and the one that was held. An
    # order may be paid in another week: its payment completes no order any more.
    assert replaced | {f"order_lines/{week}/v1"} <= new
    weeks = {path.split("/")[1] for path in replaced} | {week}
    assert {path.split("/")[0] for path in new if path.split("/")[1] not in weeks} <= {"completed_orders"}
    [receipt] = receipts.every(catalog)
    assert (receipt.state, {*receipt.versions.values()}) == (receipts.DONE, {"withdrawn"})
    assert lake.holding <= {*receipt.versions}
    assert lake.pending() == set()
    assert [run.outcome for run in history.runs(catalog)][:2] == ["notification failed", "killed"]


def test_the_former_release_builds_again_and_so_does_this_one(lake: OldLake, release: Release) -> None:
    expect(0, run_lakehouse("stack", "down"))
    succeed(
        {
            "up": lambda: release.lakehouse("stack", "up"),
            "wave": lambda: release.lakehouse("stack", "sample-data", *SIZE, "--wave", "2"),
        }
    )
    # The late data of the last week is far off the weeks before: it is held, here and there.
    assert "late data in" in expect(4, release.lakehouse("weekly", "--full-refresh"))
    succeed({"down": lambda: release.lakehouse("stack", "down")})
    published = lake.versions()
    started()
    expect(4, run_lakehouse("weekly", "--full-refresh"))
    again = succeed(
        {
            "ingest verify": lambda: run_lakehouse("ingest", "verify"),
            "export verify": lambda: run_lakehouse("export", "verify"),
        }
    )
    assert (lake.versions(), lake.pending()) == (published, set())
    assert again["ingest verify"].stdout.count("all exactly once") == len(lake.tables("bronze"))
