"""Compiles the project's Java classes with Janino, which ships with Spark: no JDK is needed.

`python -m python_dev.stack.compiled JAR SOURCE...`
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from py4j.java_collections import JavaArray
from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway

from python_common.spark import spark_conf


def make_jar(jar: Path, *sources: Path) -> None:
    """Compile classes against the jars of Spark and of the project, and put them in a jar."""
    # Not the jar of a release before: its classes would hide the sources.
    jars = {*(spark_conf.SPARK_HOME / "jars").glob("*.jar"), *spark_conf.JARS_DIR.glob("*.jar")} - {jar.absolute()}
    with tempfile.TemporaryDirectory() as directory:
        gateway = launch_gateway(popen_kwargs={"stderr": subprocess.DEVNULL})  # type: ignore[no-untyped-call]
        try:
            jvm = gateway.jvm
            compiler = jvm.org.codehaus.janino.CompilerFactory().newCompiler()
            compiler.setDestinationDirectory(jvm.java.io.File(directory), False)
            compiler.setTargetVersion(8)
            compiler.setClassPath(_java_files(gateway, sorted(jars)))
            compiler.compile(_java_files(gateway, sources))
        finally:
            gateway.shutdown()
        archive = shutil.make_archive(str(jar), "zip", directory)
    # A running JVM may have the old file open.
    Path(archive).replace(jar)


def _java_files(gateway: JavaGateway, paths: Sequence[Path]) -> JavaArray:
    files = gateway.new_array(gateway.jvm.java.io.File, len(paths))
    for position, path in enumerate(paths):
        files[position] = gateway.jvm.java.io.File(str(path))
    return files


if __name__ == "__main__":
    make_jar(*map(Path, sys.argv[1:]))
