"""A site that announces versions, and the webhook calls that it makes."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.errors import Issue, UserError
from python_common.weeks import IsoWeek
from python_export.notify import deliver, outbox
from python_export.notify.exported import Exported
from python_export.notify.outbox import Entry
from python_export.publishing.publish import Published
from python_export.publishing.target import Target, open_target
from tests.support.kills import killed_at
from tests.support.versions import publish_content

WEEK, NEXT_WEEK = "2020-W53", "2021-W01"
FAILED = UserError("no", "Run again")
BEHIND = Issue("behind: payments at 2020-12-31 00:00:00 UTC", object="orders", week=WEEK)


def warning(text: str, week: str = WEEK) -> Issue:
    """Return a warning of a week, as readers get it."""
    return Issue(f"warning: {text}", week=week)


def withheld(dataset: str, reason: str = "behind: payments") -> Issue:
    """Return that a dataset is withheld for the week, as readers get it."""
    return Issue(f"{dataset} {WEEK} is withheld: {reason}", object=dataset, week=WEEK)


@dataclass
class Site:
    """A site with a lake, which publishes weeks of events and announces them."""

    settings: Settings
    catalog: Catalog

    @property
    def target(self) -> Target:
        return open_target(self.settings)

    @property
    def entries(self) -> list[Entry]:
        return outbox.entries(self.catalog)

    def publish(self, content: str, week: str = WEEK) -> Published:
        return publish_content(self.target, content, week)

    def key(self, path: str) -> str:
        """Return the key under which a version is announced."""
        return outbox.key_of(self.target, path)

    def notify(self, env: dict[str, str], notices: Iterable[Issue] = (), weeks: Iterable[str] = ()) -> list[str]:
        """Notify, and return what was not delivered."""
        return [str(error) for error in deliver.notify(self.settings, env, self.catalog, notices, weeks)]

    def notify_and_die(self, env: dict[str, str]) -> None:
        """Notify by a process that is killed once a message is sent, before it notes so."""
        killed_at("notify", "between message and note", _notify, self.settings, env)

    def alert(self, env: dict[str, str], error: UserError = FAILED) -> None:
        """Send an alert that the run for the week failed."""
        exported = Exported(IsoWeek.parse(WEEK), is_alone=True)
        with suppress(UserError), deliver.alerting(self.settings, env, exported):
            raise error


def _notify(settings: Settings, env: dict[str, str]) -> None:
    deliver.notify(settings, env, load_catalog(settings))


@dataclass
class Calls:
    """A web server that keeps what is posted to it, and answers with `status`, if any.

    It refuses the calls of week `refused`. So many times, it is `busy` first. `asked` counts all calls.
    """

    url: str = ""
    status: int = 200
    refused: str = ""
    busy: int = 0
    asked: int = 0
    received: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
