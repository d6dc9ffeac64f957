"""The end of `make setup`: a first start of Spark that makes each later one quicker (spark_server/class_archive.py)."""

import sys
import tempfile
from pathlib import Path

from lakehouse.errors import UserError
from local_stack import temporary
from spark_server import class_archive, java, spark

DUMP_SECONDS = 600


def main() -> None:
    """Make the authenticator's jar and the archive of classes.

    Raises:
        UserError: there is no Java, or a service did not start.
    """
    java.executable()
    class_archive.make_authenticator()
    to_be_written = class_archive.to_be_written()
    with (
        tempfile.TemporaryDirectory(prefix="lakehouse-setup-") as directory,
        temporary.running(Path(directory), "kafka", "thrift", more=to_be_written) as (settings, services),
    ):
        class_archive.load_classes(settings, Path(directory))
        if server := services["thrift"].process():
            server.terminate()
            server.wait(DUMP_SECONDS)
    if not spark.CLASS_ARCHIVE.exists():
        print("setup: this Java keeps no class archive, so Spark starts slower", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
