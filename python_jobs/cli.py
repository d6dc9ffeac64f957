"""The console command `lakehouse`: a sub-command per part, and where errors become lines and exit codes."""

import os
import sys
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from python_common import private_files
from python_common.config.environment import environment
from python_common.errors import DeadlineError
from python_common.log import Format, Level, configure, log
from python_common.process import INTERRUPTED, end_at_sigterm

COMMANDS = {
    "ingest": ("python_ingest.cli.ingest", "Kafka topics into Iceberg bronze tables, exactly once."),
    "export": ("python_export.cli.run", "Weekly CSV files: write, verify with a second engine, publish."),
    "weekly": (
        "python_jobs.weekly.cli",
        "Ingest, verify, build, reconcile, export, notify: for one week, or `runs` to list what it did before.",
    ),
    "erase": (
        "python_jobs.erase.cli",
        "Erase a person: rows in bronze, all that is built from them, and the snapshots and files that hold them.",
    ),
    "fork": (
        "python_jobs.commands.fork",
        "Fork the lake without copying data: a separate environment for dbt, the ingester and exports.",
    ),
    "thrift": (
        "python_jobs.commands.thrift",
        "Run the Spark Thrift server in this process until a signal ends it, for systemd or a container.",
    ),
    "pii": ("python_jobs.commands.pii", "The masking key of pseudonyms."),
    "check": ("python_jobs.commands.check", "Checks that need no running stack."),
    # By name, so that no package of production imports it.
    **(import_module("python_dev").COMMANDS if find_spec("python_dev") else {}),
}
"""The module of each sub-command, imported on use, and its summary in the list."""


LOG_OPTIONS = ("--log-level", "--log-format")


class Commands(TyperGroup):
    """Lists the sub-commands without importing their modules, which takes seconds."""

    def __init__(self, **attributes: Any) -> None:
        listed = {name: TyperCommand(name, help=summary) for name, (_, summary) in COMMANDS.items()}
        super().__init__(**attributes | {"commands": listed})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # the types are private to typer
        """Import the sub-command that is used."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(args[0]), rest


def load(name: str) -> TyperGroup:
    """Import a sub-command; one that is a group of others has its summary as help."""
    group = get_group(import_module(COMMANDS[name][0]).app)
    group.help = group.help or COMMANDS[name][1]
    return group


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Kafka topics in Avro become weekly, deduplicated, PII-masked CSV files.",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"lakehouse {version('retail-lakehouse')}")
        raise typer.Exit


@app.callback()
def lakehouse(
    log_level: Annotated[Level, typer.Option(help="Log events of this level and above.")] = "info",
    log_format: Annotated[Format, typer.Option(help="How events are logged on stderr.")] = "text",
    _: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Configure the log, and refuse misspelled variables."""
    configure(log_level, log_format)
    if "--help" not in sys.argv:
        # Imported here, for it knows the variables of every package: to list the commands needs none of them.
        from python_jobs.commands import configuration  # noqa: PLC0415

        configuration.refuse_misspelled(environment())


def options_first(arguments: list[str]) -> list[str]:
    """Move the options of the log, which the group takes, in front of the sub-command: users type them behind, too."""
    options, rest = [], []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, _ = argument.partition("=")
        if argument == "--":
            # What follows is a command of another program.
            rest += [argument, *remaining]
        elif name not in LOG_OPTIONS:
            rest.append(argument)
        else:
            options += [argument] if equals else [argument, *islice(remaining, 1)]
    return [*options, *rest]


def main() -> None:
    """Run the command line; an error of any kind ends it with one line on stderr and exit code 1."""
    private_files.set_umask()
    end_at_sigterm()
    # Until the options are read.
    configure()
    try:
        app(options_first(sys.argv[1:]))
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            # Python would delete clients of Kafka at its end, which may hang.
            _end_at_once(INTERRUPTED)
        raise
    except Exception as error:  # no traceback: it could quote a record
        # Imported here, for it knows the errors of every library.
        from python_common.failure import to_user_error  # noqa: PLC0415

        log.error(to_user_error(error))
        if isinstance(error, DeadlineError):
            # A thread that still waits for what hangs would keep the process from ending.
            _end_at_once(1)
        sys.exit(1)


def _end_at_once(code: int) -> None:
    sys.stdout.flush()
    os._exit(code)
