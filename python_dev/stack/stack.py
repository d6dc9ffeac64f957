"""The local stack: its services, their data, and the env file with their addresses."""

import os
import secrets
from pathlib import Path

from python_common import pii_key, private_files
from python_common.catalog import catalog_properties
from python_common.config import environment as environment_file
from python_common.config.environment import PROJECT_ROOT, env_file, environment, home
from python_common.config.security import ThriftSecurity
from python_common.config.settings import Ports, Settings, from_environment
from python_common.config.variables import fields
from python_common.errors import UserError
from python_common.log import log
from python_common.process import Service, free_ports, is_free
from python_common.spark import spark_conf, thrift_server
from python_dev.stack import kafka, mail, registry

MARK = ".lakehouse-stack"
THRIFT_TLS = tuple(fields(ThriftSecurity))
FILES = (Settings.variable("catalog_properties"), Settings.variable("spark_conf"))
SERVICES = ("kafka", "registry", "thrift", "mail")
THRIFT_PORT = Settings.variable("thrift_port")
PORTS = (*fields(Ports), THRIFT_PORT)


def variables(started: tuple[str, ...]) -> dict[str, str]:
    """Return the variables of the env file.

    A started service has its local address. All else comes from the environment, so that `--only thrift` serves a
    warehouse, a broker and a registry elsewhere; then from the last env file; then from home.
    """
    root = home()
    before = environment()
    ports = Ports.of(before)
    addresses = {
        "kafka": ("KAFKA_BOOTSTRAP_SERVERS", f"127.0.0.1:{ports.kafka}"),
        "registry": ("SCHEMA_REGISTRY_URL", registry.url(ports.registry)),
        "thrift": ("LAKEHOUSE_THRIFT_HOST", "127.0.0.1"),
    }
    defaults = {
        **dict(addresses.values()),
        "LAKEHOUSE_THRIFT_PASSWORD": secrets.token_urlsafe(32),
        "LAKEHOUSE_WAREHOUSE": str(root / "warehouse"),
        "LAKEHOUSE_CATALOG_URI": catalog_properties.sqlite_uri(root),
        "LAKEHOUSE_EXPORT_ROOT": str(root / "exports"),
        "LAKEHOUSE_PII_KEY_FILE": str(root / "pii.key"),
    }
    of_started = dict(addresses[name] for name in started if name in addresses)
    is_tls = ThriftSecurity.of(before).is_on
    mails = mail.variables(str(ports.mail))
    return {
        **{name: str(port) for name, port in ports.model_dump(by_alias=True).items()},
        THRIFT_PORT: before.get(THRIFT_PORT) or Settings.model_fields["thrift_port"].default,
        **{name: before.get(name, default) for name, default in defaults.items()},
        **(mails if "mail" in started else {name: before[name] for name in mails if name in before}),
        **{name: before[name] for name in THRIFT_TLS if is_tls and name in before},
        **{name: before[name] for name in FILES if name in before},
        **of_started,
    }


def replace_busy_ports(started: tuple[str, ...]) -> None:
    """Set free ports in the environment for services that start, where the env file's or the default ones are busy.

    Raises:
        UserError: the environment sets a port that another program uses. It names all of these.
    """
    starting = [service for name, service in services(variables(started)).items() if name in started]
    ports = {name: port for service in starting if not service.process() for name, port in service.ports.items()}
    busy = [name for name, port in ports.items() if not is_free(port)]
    if explicit := [name for name in busy if os.environ.get(name)]:
        raise UserError(
            f"In use by other programs: {', '.join(f'{name}={ports[name]}' for name in explicit)}",
            f"Set {' and '.join(explicit)} to free ports; a variable that is not set gets one",
        )
    for name, port in zip(busy, free_ports(len(busy)), strict=True):
        log.info("port %s is in use by another program: %s is %s", ports[name], name, port)
        os.environ[name] = str(port)


def write_env_file(values: dict[str, str]) -> Path:
    """Write the env file of the home, which is created."""
    private_files.directory(home())
    return environment_file.write_env_file(env_file(), values)


def services(values: dict[str, str]) -> dict[str, Service]:
    """Return the services by name, in the order in which they start."""
    root, ports = home(), Ports.of(values)
    return {
        "kafka": kafka.service(root / "kafka", ports.kafka, ports.kafka_controller),
        "registry": registry.service(root / "registry", ports.registry),
        "thrift": thrift_server.service(root / "thrift", from_environment(values)),
        "mail": mail.service(root / "mail", ports.mail),
    }


def prepare(values: dict[str, str]) -> None:
    """Check the jars, and create directories and the masking key, which is never replaced."""
    spark_conf.require_jars()
    # `wipe` deletes no directory that had other files before.
    if not home().exists() or not any(home().iterdir()):
        private_files.write(
            private_files.directory(home()) / MARK, "`lakehouse stack down --wipe` deletes this directory.\n"
        )
    environment_of_dbt = environment()
    for variable, default in (("DBT_TARGET_PATH", "target"), ("DBT_LOG_PATH", "logs")):
        private_files.directory(PROJECT_ROOT / environment_of_dbt.get(variable, default))
    key_file = from_environment(values).needed("pii_key_file")
    if not key_file.exists():
        pii_key.create(key_file)


def require_mark() -> None:
    """Raise a UserError if the home must not be deleted: the stack did not create it, or it has forks."""
    if home().exists() and not (home() / MARK).is_file():
        raise UserError(
            f"{home()} had other files before the stack used it, so it is not deleted",
            f"Delete it by hand, or put a file {MARK} in it if all of it may go",
        )
    if forks := sorted(path.parent.name for path in home().glob("forks/*/env")):
        raise UserError(f"There are forks: {', '.join(forks)}", "Stop and delete them by `lakehouse fork drop NAME`")


def wipe() -> None:
    """Delete all data of the local stack, whose services must be down; a UserError if that is refused or fails."""
    require_mark()
    private_files.delete(home())
