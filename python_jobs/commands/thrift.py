"""`lakehouse thrift`."""

import typer

from python_common.config.settings import from_environment
from python_common.spark import thrift_server

app = typer.Typer(invoke_without_command=True)


@app.callback()
def thrift() -> None:
    """Run the Spark Thrift server in this process until a signal ends it, for systemd or a container.

    It logs to stderr. `lakehouse stack up --only thrift` starts one in the background instead.
    """
    thrift_server.exec_server(from_environment())
