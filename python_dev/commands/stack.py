"""`lakehouse stack`: the services of the local stack, up and down."""

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from python_common.config.environment import home
from python_common.config.settings import from_environment
from python_common.errors import UserError
from python_common.log import log
from python_common.output import AsJson, console, print_json, print_table
from python_common.weeks import IsoWeek
from python_dev.stack import mail, sample_data, stack, temporary

app = typer.Typer(no_args_is_help=True)

Only = Annotated[
    list[str] | None,
    typer.Option("--only", help=f"Just this service; repeatable. One of {', '.join(stack.SERVICES)}."),
]


def _chosen(only: list[str] | None) -> tuple[str, ...]:
    unknown = set(only or ()) - set(stack.SERVICES)
    if unknown:
        raise UserError(f"There is no service {sorted(unknown)[0]}", f"Choose from {', '.join(stack.SERVICES)}")
    return tuple(name for name in stack.SERVICES if not only or name in only)


@app.command()
def up(only: Only = None) -> None:
    """Start what does not run yet, wait until it answers, and write the env file."""
    chosen = _chosen(only)
    stack.replace_busy_ports(chosen)
    values = stack.variables(chosen)
    stack.prepare(values)
    # Written first, so that `down` knows the ports after a failed start.
    path = stack.write_env(values)
    services = stack.services(values)
    started_at = time.monotonic()
    log.info("starting %s", ", ".join(chosen))
    launched = {name: services[name].launch() for name in chosen}
    for name, is_new in launched.items():
        services[name].wait()
        log.info(f"{name}: {'ready' if is_new else 'already running'} ({time.monotonic() - started_at:.0f} s)")
    console.print(f"environment: {path}")


@app.command()
def down(
    only: Only = None,
    wipe: Annotated[bool, typer.Option(help="Also delete all data: topics, schemas, tables, exports, key.")] = False,
) -> None:
    """Stop what runs."""
    chosen = _chosen(only)
    if wipe and only:
        raise UserError("--wipe deletes the data of all services", "Leave out --only")
    if wipe:
        stack.require_mark()
    services = stack.services(stack.variables(()))
    for name in reversed(chosen):
        console.print(f"{name}: {'stopped' if services[name].stop() else 'was not running'}")
    if wipe:
        stack.wipe()
        console.print("data: deleted")


@app.command()
def status(
    as_json: AsJson = False,
) -> None:
    """Show each service's address, in JSON null if it is down. Exit code 1 if one does not answer."""
    values = stack.variables(())
    addresses = {
        "kafka": values["KAFKA_BOOTSTRAP_SERVERS"],
        "registry": values["SCHEMA_REGISTRY_URL"],
        "thrift": f"{values['LAKEHOUSE_THRIFT_HOST']}:{values['LAKEHOUSE_THRIFT_PORT']}",
        "mail": f"{stack.LOOPBACK}:{stack.port('mail', values)}",
    }
    running = {name: bool(service.process()) and service.answers() for name, service in stack.services(values).items()}
    locations = {
        "catalog_uri": values["LAKEHOUSE_CATALOG_URI"],
        "warehouse": values["LAKEHOUSE_WAREHOUSE"],
        "export_root": values["LAKEHOUSE_EXPORT_ROOT"],
    }
    if as_json:
        up_addresses = {name: address if running[name] else None for name, address in addresses.items()}
        print_json(up_addresses | locations)
    else:
        services = [(name, "up" if running[name] else "down", address) for name, address in addresses.items()]
        print_table(
            ("part", "state", "address"), [*services, *((name, None, location) for name, location in locations.items())]
        )
    if not all(running.values()):
        raise typer.Exit(1)


@app.command()
def logs(
    service: Annotated[str, typer.Argument(help=f"One of {', '.join(stack.SERVICES)}.")],
    lines: Annotated[int, typer.Option(help="How many lines from the end.")] = 50,
) -> None:
    """Print the end of a service's log."""
    (name,) = _chosen([service])
    for line in stack.services(stack.variables(()))[name].last_lines(lines):
        console.print(line)


@app.command(name="mail")
def show_mail() -> None:
    """Print the newest mail of this stack's mail server."""
    newest = mail.newest(home() / "mail")
    if newest is None:
        raise UserError("There is no mail yet", "`lakehouse export run` sends one when something new is published")
    for header in ("Date", "From", "To", "Subject"):
        console.print(f"{header}: {newest[header]}")
    text = newest.get_body(("plain",))
    console.print("\n" + (text.get_content() if text else ""))


@app.command(name="sample-data")
def load_sample_data(
    topics: Annotated[list[str] | None, typer.Argument(help="Topics to produce for. Default: all.")] = None,
    orders: Annotated[int, typer.Option(help="Web shop orders; every other count follows.")] = 2000,
    seed: Annotated[int, typer.Option(help="The same seed and options give the same records.")] = 1,
    weeks: Annotated[int, typer.Option(help="How many ISO weeks the records spread over.")] = 4,
    last_week: Annotated[
        str | None, typer.Option(help="The newest week. Default: that of the load before, else the last complete one.")
    ] = None,
    wave: Annotated[int, typer.Option(help="2 adds late duplicates, deletes and new schema versions after 1.")] = 1,
    behind: Annotated[
        str | None, typer.Option(help="A topic to leave without its last day; its next load adds it.")
    ] = None,
) -> None:
    """Produce synthetic records for every topic, and write down the expected results."""
    report = sample_data.load(
        from_environment(),
        orders=orders,
        seed=seed,
        weeks=weeks,
        last_week=IsoWeek.parse(last_week) if last_week else None,
        wave=wave,
        topics=topics or (),
        behind=behind,
    )
    print_table(("topic", "records"), report.records.items())
    console.print("produced" if report.produced else "the topics had these records already")
    console.print(f"expected results: {report.expected_path}")


@app.command(name="temporary")
def run_on_temporary(
    command: Annotated[list[str], typer.Argument(help="Behind --, for instance -- lakehouse review --base main.")],
    orders: Annotated[int, typer.Option(help="As of sample-data, which is landed first.")] = 2000,
    weeks: Annotated[int, typer.Option(help="As of sample-data.")] = 4,
) -> None:
    """Run a command on a temporary stack with landed sample data; the exit code is the command's."""
    with TemporaryDirectory(prefix="lakehouse-") as directory, temporary.running(Path(directory), *stack.SERVICES):
        log.info("temporary stack: landing sample data")
        sample_data.load(from_environment(), orders=orders, seed=1, weeks=weeks)
        lakehouse = Path(sys.executable).with_name("lakehouse")
        landed = subprocess.run(
            [lakehouse, "--log-level=warning", "ingest", "run"], stdout=subprocess.DEVNULL, check=False
        )
        code = landed.returncode or subprocess.run(command, check=False).returncode
    raise typer.Exit(code)
