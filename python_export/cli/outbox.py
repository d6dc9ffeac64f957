"""`lakehouse export outbox`: the pending notifications, and what to do about them."""

from typing import Annotated

import typer
from pyiceberg.catalog import Catalog

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import environment
from python_common.config.settings import from_environment
from python_common.errors import UserError
from python_common.output import AsJson, print_table
from python_export.cli.outcome import end
from python_export.notify import outbox
from python_export.notify.deliver import notify
from python_export.variables import Channels

app = typer.Typer(no_args_is_help=True, help="Pending notifications: ops.export_outbox.")

Keys = Annotated[list[str], typer.Argument(help="Rows by their key, as `list` prints it.")]


@app.command("list")
def list_rows(
    all_rows: Annotated[bool, typer.Option("--all", help="Also rows that are not pending.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what is pending for mail or webhook: the last error, and the recipients that wait for it."""
    rows = [
        (
            entry.idempotency_key,
            *(getattr(entry, channel) for channel in outbox.CHANNELS),
            entry.failed_attempts,
            entry.waiting_for or "",
            entry.last_error or "",
        )
        for entry in outbox.entries(load_catalog(from_environment()))
        if all_rows or entry.is_pending
    ]
    print_table(("key", *outbox.CHANNELS, "attempts", "waiting for", "last error"), rows, as_json)


@app.command()
def retry(keys: Keys) -> None:
    """Send these rows again to all, and everything else that is pending.

    Exit code 3: a notification failed.
    """
    env = environment()
    settings = from_environment(env)
    catalog = load_catalog(settings)
    _require_rows(catalog, keys)
    outbox.requeue(catalog, keys, Channels.of(env))
    end(notify(settings, env, catalog))


@app.command()
def drop(keys: Keys) -> None:
    """Deliver these rows to no one; `lakehouse export verify` no longer reports them as missing."""
    catalog = load_catalog(from_environment())
    _require_rows(catalog, keys)
    outbox.drop(catalog, keys)


def _require_rows(catalog: Catalog, keys: list[str]) -> None:
    present = {entry.idempotency_key for entry in outbox.entries(catalog)}
    for key in keys:
        if key not in present:
            raise UserError(f"The outbox has no row {key}", "See `lakehouse export outbox list --all`")
