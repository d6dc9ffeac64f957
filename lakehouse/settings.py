"""Where everything is: the environment, else the env file that `lakehouse stack up` wrote."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from lakehouse import deadline
from lakehouse.durations import seconds
from lakehouse.errors import UserError
from lakehouse.security import (
    KafkaSecurity,
    RegistrySecurity,
    ThriftSecurity,
    kafka_security,
    registry_security,
    thrift_security,
)

PROJECT_ROOT = Path(__file__).resolve().parent.parent

CATALOG_NAME = "lake"
THRIFT_USER = "lakehouse"


@dataclass(frozen=True)
class Settings:
    """Addresses and paths, read once per process; the names of the variables are in `from_environment`."""

    kafka_bootstrap_servers: str
    schema_registry_url: str
    warehouse: str
    catalog_uri: str
    export_root: str
    export_staging: Path
    pii_key_file: Path
    thrift_host: str
    thrift_port: int
    thrift_password: str = field(repr=False)
    kafka_security: KafkaSecurity = field(default_factory=KafkaSecurity)
    registry_security: RegistrySecurity = field(default_factory=RegistrySecurity)
    thrift_security: ThriftSecurity = field(default_factory=ThriftSecurity)
    export_delay: timedelta = timedelta(0)
    export_grace: timedelta | None = None
    export_bom: bool = False
    export_url: str = ""


def home() -> Path:
    """Return the directory that holds the local stack's state: `LAKEHOUSE_HOME`, else `.lakehouse` in the project."""
    return Path(os.environ.get("LAKEHOUSE_HOME") or PROJECT_ROOT / ".lakehouse").absolute()


def env_file() -> Path:
    """Return the path of the env file: `export KEY=value` lines, mode 0600."""
    return home() / "env"


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of an env file; an absent file holds none."""
    if not path.exists():
        return {}
    words = shlex.split(path.read_text(), comments=True)
    return dict(word.split("=", 1) for word in words if word != "export")


def environment() -> dict[str, str]:
    """Return the process environment laid over the env file: a variable that is set wins."""
    in_file = read_env_file(env_file())
    if "LAKEHOUSE_SMTP_HOST" in os.environ:
        # What the file says of the local stack's mail server is wrong for another one.
        in_file = {name: value for name, value in in_file.items() if not name.startswith("LAKEHOUSE_SMTP_")}
    return {**in_file, **os.environ}


def from_environment(env: Mapping[str, str] | None = None) -> Settings:
    """Return the settings.

    Raises:
        UserError: a variable is missing, malformed, or contradicts another.
    """
    env = environment() if env is None else env

    def required(name: str) -> str:
        value = env.get(name, "")
        if not value:
            raise UserError(f"{name} is not set", "Run `lakehouse stack up`, or set it in the environment")
        return value

    def duration(name: str) -> timedelta | None:
        text = env.get(name, "")
        try:
            return timedelta(seconds=seconds(text)) if text else None
        except UserError as error:
            raise UserError(f"{name}: {error.message}", error.remedy) from None

    catalog_uri = required("LAKEHOUSE_CATALOG_URI")
    if not catalog_uri.startswith("jdbc:"):
        raise UserError("LAKEHOUSE_CATALOG_URI is not a JDBC URL", "Write it as jdbc:sqlite:/path/catalog.db")
    port = env.get("LAKEHOUSE_THRIFT_PORT", "10000")
    if not port.isdigit():
        raise UserError("LAKEHOUSE_THRIFT_PORT is not a number", "Give the port of the Spark Thrift server")
    for name in deadline.DEFAULTS:
        deadline.limit(name, env)
    bom = env.get("LAKEHOUSE_EXPORT_BOM", "false")
    if bom not in {"true", "false"}:
        raise UserError(f"LAKEHOUSE_EXPORT_BOM is '{bom}'", "Set it to true or false")
    url = env.get("LAKEHOUSE_EXPORT_URL", "")
    if url and urlsplit(url).scheme not in {"http", "https"}:
        raise UserError("LAKEHOUSE_EXPORT_URL is not a URL", "Write it as https://host/path of the export root")
    return Settings(
        kafka_bootstrap_servers=required("KAFKA_BOOTSTRAP_SERVERS"),
        schema_registry_url=required("SCHEMA_REGISTRY_URL"),
        warehouse=required("LAKEHOUSE_WAREHOUSE"),
        catalog_uri=catalog_uri,
        export_root=required("LAKEHOUSE_EXPORT_ROOT"),
        export_staging=Path(env.get("LAKEHOUSE_EXPORT_STAGING") or home() / "export-staging"),
        pii_key_file=Path(required("LAKEHOUSE_PII_KEY_FILE")),
        thrift_host=env.get("LAKEHOUSE_THRIFT_HOST", "127.0.0.1"),
        thrift_port=int(port),
        thrift_password=env.get("LAKEHOUSE_THRIFT_PASSWORD", ""),
        kafka_security=kafka_security(env),
        registry_security=registry_security(env),
        thrift_security=thrift_security(env),
        export_delay=duration("LAKEHOUSE_EXPORT_DELAY") or timedelta(0),
        export_grace=duration("LAKEHOUSE_EXPORT_GRACE"),
        export_bom=bom == "true",
        export_url=url,
    )
