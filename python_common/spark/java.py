"""Finds a Java of a version that Spark runs on."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from python_common.errors import UserError

SUPPORTED_VERSIONS = range(17, 24)
REMEDY = "Install it with `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME"


def executable() -> str:
    """Return the path of a `java` that Spark runs on, from JAVA_HOME, else from PATH; a UserError if none fits."""
    java_home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(java_home, "bin", "java")) if java_home else "java")
    if not path:
        where = f"in JAVA_HOME ({java_home})" if java_home else "on the PATH"
        raise UserError(f"Java is missing {where}", REMEDY)
    banner = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', banner)
    if not match or int(match[1]) not in SUPPORTED_VERSIONS:
        version = match[1] if match else "of an unknown version"
        raise UserError(f"Java {version} at {path} does not run Spark, which needs 17 to 23", REMEDY)
    return path
