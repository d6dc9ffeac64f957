"""`lakehouse export outbox`: what readers are still to be told, and what to do about it."""

from typing import Annotated

import typer

from lakehouse.catalog import load_catalog
from lakehouse.environment import environment
from lakehouse.errors import UserError
from lakehouse.output import console, print_table
from lakehouse.settings import from_environment
from python_export.cli.outcome import end
from python_export.telling import outbox
from python_export.telling.deliver import notify
from python_export.variables import Channels

app = typer.Typer(no_args_is_help=True, help="What readers are still to be told: ops.export_outbox.")

Keys = Annotated[list[str], typer.Argument(help="Rows by their key, as `list` prints it.")]


@app.command("list")
def list_rows(all_rows: Annotated[bool, typer.Option("--all", help="Also what nobody waits for.")] = False) -> None:
    """List what is owed to mail or webhook: why it was not taken the last time, and who waits for it."""
    rows = [
        (
            entry.idempotency_key,
            entry.mail,
            entry.webhook,
            entry.failed_attempts,
            entry.waiting_for or "",
            entry.last_error or "",
        )
        for entry in outbox.entries(load_catalog(from_environment()))
        if all_rows or entry.is_pending
    ]
    print_table(("key", "mail", "webhook", "attempts", "waiting for", "last error"), rows)


@app.command()
def retry(keys: Keys) -> None:
    """Tell of these rows once more, whoever has been told of them, and of everything else that is owed.

    Exit code 3: a notification failed.
    """
    env = environment()
    settings = from_environment(env)
    catalog = load_catalog(settings)
    _require_rows(keys)
    outbox.owe(catalog, keys, Channels.of(env))
    end(notify(settings, env, catalog, console.print))


@app.command()
def drop(keys: Keys) -> None:
    """Tell nobody of these rows, and let `lakehouse export verify` miss them no more."""
    _require_rows(keys)
    outbox.drop(load_catalog(from_environment()), keys)


def _require_rows(keys: list[str]) -> None:
    present = {entry.idempotency_key for entry in outbox.entries(load_catalog(from_environment()))}
    for key in keys:
        if key not in present:
            raise UserError(f"The outbox has no row {key}", "See `lakehouse export outbox list --all`")
