"""Forks of the lake in LAKEHOUSE_HOME/forks, each with a home, a separate Thrift server and an env file.

What reaches other people is off in a fork: mails, webhook, and the export roots and deliveries that production's tables
name. Its masking key is production's, so that pseudonyms agree.
"""

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyiceberg.catalog import Catalog

from python_common import private_files
from python_common.catalog import catalog_properties
from python_common.catalog.catalog import load_catalog, require_views
from python_common.config import environment
from python_common.config.settings import Settings, from_environment
from python_common.config.variables import fields
from python_common.errors import UserError
from python_common.locks import lease
from python_common.locks.lock import locked
from python_common.output import console
from python_common.process import Service, free_ports
from python_common.spark import thrift_server
from python_common.spark.spark_conf import master, own_properties
from python_export.notify import outbox
from python_export.variables import Channels
from python_jobs import fork_catalog

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
# A row of production's would make a fork wait for production, or send its mails.
EMPTY_TABLES = (lease.TABLE.identifier, outbox.TABLE.identifier)
DISABLED_VARIABLES = (
    # Without the announced root: exports of a fork to its root stay trials, as those of any other root.
    *(name for name in fields(Channels) if name != "LAKEHOUSE_NOTIFY_ROOT"),
    "LAKEHOUSE_EXPORT_URL",
    "LAKEHOUSE_THRIFT_TLS",
)
FACTS_FILE = "fork.json"
CATALOG_PROPERTIES = "catalog.properties"
# Where Spark may log its events.
EVENTS = "events"


@dataclass(frozen=True)
class Fork:
    """A fork, its tag in production, where it is, and until when production keeps what it reads, in ISO 8601."""

    name: str
    tag: str
    directory: Path
    made_at: str
    expires_at: str

    @property
    def env_file(self) -> Path:
        """The variables that lead dbt and all commands to it."""
        return self.directory / "env"

    @property
    def settings(self) -> Settings:
        """The settings that the env file makes."""
        return from_environment(environment.read_env_file(self.env_file))

    def server(self) -> Service:
        """Return its Thrift server."""
        return thrift_server.service(self.directory / "thrift", self.settings)


def create(settings: Settings, name: str, lives: timedelta, properties: Mapping[str, str] | None = None) -> Fork:
    """Fork the lake while no build runs, start the fork's Thrift server, and drop forks that have expired.

    `properties` are Spark's, of the fork alone.

    Raises:
        UserError: the name exists or is invalid, or the lake cannot be forked.
    """
    if not NAME.fullmatch(name):
        raise UserError(f"'{name}' is not a fork name", "Begin with a to z, then a to z, 0 to 9 and _; 40 at most")
    directory = forks_directory(settings)
    catalog = load_catalog(settings)
    require_views(catalog, settings)
    with lease.alone(catalog, "weekly", f"fork {name}"), locked("forks"):
        now = datetime.now(UTC).replace(microsecond=0)
        expired = [fork.directory for fork in forks(settings) if now >= datetime.fromisoformat(fork.expires_at)]
        # Hidden is what a killed command left.
        for path in (*directory.glob(".[a-z]*/"), *expired):
            _remove(catalog, path)
        if (directory / name).exists():
            raise UserError(f"There is a fork {name} already", f"lakehouse fork drop {name}, or choose another name")
        draft = private_files.directory(directory / f".{name}")
        private_files.directory(draft / EVENTS)
        # Forks of other homes may have the name, too.
        tag = f"{fork_catalog.TAG_PREFIX}{name}_{secrets.token_hex(4)}"
        fork = Fork(name, tag, directory / name, now.isoformat(), (now + lives).isoformat())
        private_files.write(draft / FACTS_FILE, json.dumps(asdict(fork), default=str))
        fork_catalog.tag(catalog, tag, lives)
        fork_catalog.write(catalog, tag, draft, fork.directory, EMPTY_TABLES)
        of_store = fork_catalog.store_properties(settings)
        # Executors on other machines would not see the directory of a fork.
        local = {} if master(settings).startswith("local") else {"spark.master": "local[*]"}
        of_spark = {**own_properties(settings), **local, **(properties or {}), **_base(fork.directory, of_store)}
        _write_properties(draft / "spark.conf", of_spark)
        _write_properties(draft / CATALOG_PROPERTIES, of_store)
        environment.write_env_file(draft / "env", _variables(settings, fork))
        draft.rename(fork.directory)
    fork.server().start()
    return fork


def forks(settings: Settings) -> list[Fork]:
    """Return the forks of this home, by name."""
    return [fork for path in _directories(settings) if path.name[0] != "." and (fork := _read(path))]


def drop(settings: Settings, name: str, missing_ok: bool = False) -> None:
    """Stop a fork's server, delete its files, and let production's maintenance delete what it read.

    A fork that was killed while it was made is dropped too. A UserError if there is no such fork, unless `missing_ok`.
    """
    with locked("forks"):
        paths = [path for path in _directories(settings) if path.name.removeprefix(".") == name]
        if not paths and not missing_ok:
            names = ", ".join(fork.name for fork in forks(settings)) or "none"
            raise UserError(f"There is no fork {name}", f"There are: {names}")
        for path in paths:
            _remove(load_catalog(settings), path)


def drop_all(settings: Settings) -> list[str]:
    """Drop the forks of this home, which hold rows of every person; return what else may, and what to do about it."""
    for name in sorted({path.name.removeprefix(".") for path in _directories(settings)}):
        drop(settings, name, missing_ok=True)
        console.print(f"fork {name} had the same rows: it is dropped")
    others = [f"{path} is not a fork: delete it" for path in sorted(forks_directory(settings).glob("*"))]
    for tag in fork_catalog.tags(load_catalog(settings)):
        name = tag.removeprefix(fork_catalog.TAG_PREFIX).rpartition("_")[0]
        others.append(f"fork {name} (tag {tag}) is of another LAKEHOUSE_HOME: `lakehouse fork drop {name}` there")
    return others


def forks_directory(settings: Settings) -> Path:
    """Return the directory of the forks."""
    if (settings.home / FACTS_FILE).exists():
        raise UserError(f"{settings.home} is a fork itself", "Give the command where its env file is not sourced")
    return settings.home / "forks"


def _directories(settings: Settings) -> list[Path]:
    """Return the directories of forks, those that are left of killed commands first: their names are hidden."""
    directories = (path for path in forks_directory(settings).glob("*/") if not path.is_symlink())
    return sorted(path for path in directories if NAME.fullmatch(path.name.removeprefix(".")))


def _remove(catalog: Catalog, path: Path) -> None:
    """Remove a fork that looks whole, or what is left of one under its hidden name, which must not have both."""
    hidden = path.with_name(f".{path.name.removeprefix('.')}")
    fork = _read(path)
    if fork and path != hidden:
        fork.server().stop()
    path.rename(hidden)
    for inner in hidden.iterdir():
        if inner.name != FACTS_FILE:
            private_files.delete(inner)
    # After the rows, since a damaged table prevents it, and before the file that names the tag.
    if fork:
        fork_catalog.untag(catalog, fork.tag)
    private_files.delete(hidden)


def _read(directory: Path) -> Fork | None:
    """Return the fork in a directory; None in a copy, and in what a shell of a dropped fork has written."""
    facts = json.loads((directory / FACTS_FILE).read_text()) if (directory / FACTS_FILE).exists() else {}
    is_of_it = facts.get("name") == directory.name.removeprefix(".")
    return Fork(**{"tag": "", **facts, "directory": Path(facts["directory"])}) if is_of_it else None


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    private_files.write(path, "".join(f"{key} {value}\n" for key, value in properties.items()))


def _base(directory: Path, of_store: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the fork's second catalog: production as it was, read only."""
    catalog = f"spark.sql.catalog.{fork_catalog.BASE_CATALOG}"
    return {
        **{f"{catalog}.{name}": value for name, value in of_store.items()},
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.cache-enabled": "false",
        f"{catalog}.uri": catalog_properties.sqlite_uri(directory),
        f"{catalog}.warehouse": str(directory / "base"),
    }


def _variables(settings: Settings, fork: Fork) -> Mapping[str, str]:
    key = {} if settings.pii_key_file is None else {"LAKEHOUSE_PII_KEY_FILE": str(settings.pii_key_file)}
    return {
        **environment.read_env_file(environment.env_file()),
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "SCHEMA_REGISTRY_URL": settings.schema_registry_url,
        **key,
        **dict.fromkeys(DISABLED_VARIABLES, ""),
        "LAKEHOUSE_CATALOG_PROPERTIES": str(fork.directory / CATALOG_PROPERTIES),
        "LAKEHOUSE_HOME": str(fork.directory),
        "LAKEHOUSE_CATALOG_URI": catalog_properties.sqlite_uri(fork.directory),
        "LAKEHOUSE_WAREHOUSE": str(fork.directory / "warehouse"),
        "LAKEHOUSE_EXPORT_ROOT": str(fork.directory / "exports"),
        "LAKEHOUSE_SPARK_CONF": str(fork.directory / "spark.conf"),
        "LAKEHOUSE_THRIFT_HOST": "127.0.0.1",
        "LAKEHOUSE_THRIFT_PORT": str(free_ports(1)[0]),
        "LAKEHOUSE_THRIFT_PASSWORD": secrets.token_urlsafe(32),
        "DBT_TARGET_PATH": str(fork.directory / "target"),
        "DBT_LOG_PATH": str(fork.directory / "logs"),
    }
