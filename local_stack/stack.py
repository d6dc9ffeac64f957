"""The local stack as a whole: its services, where they keep their data, and the env file that names them."""

import secrets
import shlex
import shutil
from pathlib import Path

from lakehouse import pii_key, spark
from lakehouse.errors import UserError
from lakehouse.settings import env_file, environment, from_environment, home
from local_stack import kafka, mail, registry, thrift_server
from local_stack.process import Service

SERVICES = ("kafka", "registry", "thrift", "mail")
PORTS = {
    "LAKEHOUSE_KAFKA_PORT": 9092,
    "LAKEHOUSE_KAFKA_CONTROLLER_PORT": 9093,
    "LAKEHOUSE_REGISTRY_PORT": 8081,
    "LAKEHOUSE_THRIFT_PORT": 10000,
    "LAKEHOUSE_MAIL_PORT": 1025,
}


def variables(started: tuple[str, ...]) -> dict[str, str]:
    """Return the variables the env file should hold.

    A service that this stack starts is named by its own address. Everything else comes from the environment, so that
    `--only thrift` serves a warehouse, a broker and a registry elsewhere; then from the last env file; then from home.
    """
    root = home()
    before = environment()
    ports = {name: before.get(name, str(default)) for name, default in PORTS.items()}
    for name, port in ports.items():
        if not (port.isdecimal() and 0 < int(port) < 65_536):
            raise UserError(f"{name} is not the number of a port", "Set it to one from 1 to 65535")
    addresses = {
        "kafka": ("KAFKA_BOOTSTRAP_SERVERS", f"127.0.0.1:{ports['LAKEHOUSE_KAFKA_PORT']}"),
        "registry": ("SCHEMA_REGISTRY_URL", registry.url(int(ports["LAKEHOUSE_REGISTRY_PORT"]))),
        "thrift": ("LAKEHOUSE_THRIFT_HOST", "127.0.0.1"),
    }
    defaults = {
        **dict(addresses.values()),
        "LAKEHOUSE_THRIFT_PASSWORD": secrets.token_urlsafe(32),
        "LAKEHOUSE_WAREHOUSE": str(root / "warehouse"),
        "LAKEHOUSE_CATALOG_URI": f"jdbc:sqlite:{root / 'catalog.db'}?journal_mode=WAL&busy_timeout=30000",
        "LAKEHOUSE_EXPORT_ROOT": str(root / "exports"),
        "LAKEHOUSE_PII_KEY_FILE": str(root / "pii.key"),
    }
    own = dict(addresses[name] for name in started if name in addresses)
    mails = mail.variables(ports["LAKEHOUSE_MAIL_PORT"])
    return {
        **ports,
        **{name: before.get(name, default) for name, default in defaults.items()},
        **(mails if "mail" in started else {name: before[name] for name in mails if name in before}),
        **own,
    }


def write_env_file(values: dict[str, str]) -> Path:
    """Write the env file, 0600; both a shell's `source` and `uv run --env-file` can read it."""
    path = env_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items())))
    draft.replace(path)
    return path


def services(values: dict[str, str]) -> dict[str, Service]:
    """Return the services by name, in the order in which they start."""
    settings = from_environment(values)
    root = home()
    return {
        "kafka": kafka.service(
            root / "kafka",
            int(values["LAKEHOUSE_KAFKA_PORT"]),
            int(values["LAKEHOUSE_KAFKA_CONTROLLER_PORT"]),
        ),
        "registry": registry.service(root / "registry", int(values["LAKEHOUSE_REGISTRY_PORT"])),
        "thrift": thrift_server.service(root / "thrift", settings),
        "mail": mail.service(root / "mail", int(values["LAKEHOUSE_MAIL_PORT"])),
    }


def prepare(values: dict[str, str]) -> None:
    """Check the jars, and create what else the services need: the masking key, which is never replaced."""
    spark.require_jars()
    key_file = from_environment(values).pii_key_file
    if not key_file.exists():
        pii_key.create(key_file)
    pii_key.keep(key_file)


def wipe() -> None:
    """Delete all data of the local stack. Its services must be down."""
    shutil.rmtree(home(), ignore_errors=True)
