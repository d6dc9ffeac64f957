"""The local stack: its services, their data, and the env file with their addresses."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from python_common import pii_key, private_files
from python_common.catalog import catalog_properties
from python_common.config.environment import PROJECT_ROOT, env_file, environment, home, write_env_file
from python_common.config.security import ThriftSecurity
from python_common.config.settings import Settings, from_environment
from python_common.config.variables import fields
from python_common.errors import UserError
from python_common.log import log
from python_common.process import Service, free_ports, is_free
from python_common.spark import spark_conf, thrift_server
from python_dev.stack import kafka, mail, registry

MARK = ".lakehouse-stack"
THRIFT_TLS = tuple(fields(ThriftSecurity))
FILES = (Settings.variable("catalog_properties"), Settings.variable("spark_conf"))
LOOPBACK = "127.0.0.1"
ADDRESSES = {
    "kafka": ("KAFKA_BOOTSTRAP_SERVERS", f"{LOOPBACK}:{{}}", 9092),
    "registry": ("SCHEMA_REGISTRY_URL", registry.URL, 8081),
    "thrift": ("LAKEHOUSE_THRIFT_PORT", "{}", 10_000),
    "mail": ("LAKEHOUSE_SMTP_PORT", "{}", 1025),
}
"""The variable of each service, its address by a port, and the port of a first start."""
SERVICES = tuple(ADDRESSES)


def port(service: str, env: Mapping[str, str]) -> int:
    """Return the port of a local service: that of its variable, unless this names a server elsewhere.

    Raises:
        UserError: the variable names no port.
    """
    variable, address, first = ADDRESSES[service]
    value = env.get(variable, "")
    number = value.removeprefix(address.partition("{}")[0]).removesuffix(address.partition("{}")[2])
    is_elsewhere = service == "mail" and env.get("LAKEHOUSE_SMTP_HOST", LOOPBACK) != LOOPBACK
    if not value or is_elsewhere or value != address.format(number):
        return first
    if not (number.isdecimal() and 0 < int(number) < 65_536):
        raise UserError(f"{variable} is {value}", "Name a port from 1 to 65535")
    return int(number)


def variables(started: tuple[str, ...]) -> dict[str, str]:
    """Return the variables of the env file.

    A started service has its local address. All else comes from the environment, so that `--only thrift` serves a
    warehouse, a broker and a registry elsewhere; then from the last env file; then from home.
    """
    root = home()
    before = environment()
    addresses = {
        name: {variable: address.format(port(name, before))} for name, (variable, address, _) in ADDRESSES.items()
    }
    addresses["thrift"]["LAKEHOUSE_THRIFT_HOST"] = LOOPBACK
    addresses["mail"] = mail.variables(port("mail", before))
    defaults = {
        **addresses["kafka"],
        **addresses["registry"],
        **addresses["thrift"],
        "LAKEHOUSE_THRIFT_PASSWORD": secrets.token_urlsafe(32),
        "LAKEHOUSE_WAREHOUSE": str(root / "warehouse"),
        "LAKEHOUSE_CATALOG_URI": catalog_properties.sqlite_uri(root),
        "LAKEHOUSE_EXPORT_ROOT": str(root / "exports"),
        "LAKEHOUSE_PII_KEY_FILE": str(root / "pii.key"),
    }
    is_tls = ThriftSecurity.of(before).is_on
    kept = (*addresses["mail"], *FILES, *(THRIFT_TLS if is_tls else ()))
    return {
        **{name: before.get(name, default) for name, default in defaults.items()},
        **{name: before[name] for name in kept if name in before},
        **{name: value for service in started for name, value in addresses[service].items()},
    }


def replace_busy_ports(started: tuple[str, ...]) -> None:
    """Set free ports in the environment for services that start, where the env file's or the default ones are busy.

    Raises:
        UserError: the environment sets a port that another program uses. It names all of these.
    """
    values = variables(started)
    starting = [name for name, service in services(values).items() if name in started and not service.process()]
    busy = [name for name in starting if not is_free(port(name, values))]
    if explicit := [name for name in busy if os.environ.get(ADDRESSES[name][0]) == values[ADDRESSES[name][0]]]:
        names = [ADDRESSES[name][0] for name in explicit]
        raise UserError(
            f"In use by other programs: {', '.join(f'{name}={values[name]}' for name in names)}",
            f"Name free ports in {' and '.join(names)}; a variable that is not set gets one",
        )
    for service, free in zip(busy, free_ports(len(busy)), strict=True):
        variable, address, _ = ADDRESSES[service]
        log.info(
            "port %s is in use by another program: %s is %s", port(service, values), variable, address.format(free)
        )
        os.environ[variable] = address.format(free)


def write_env(values: dict[str, str]) -> Path:
    """Write the env file of the home, which is created."""
    private_files.directory(home())
    return write_env_file(env_file(), values)


def services(values: dict[str, str]) -> dict[str, Service]:
    """Return the services by name, in the order in which they start."""
    root = home()
    return {
        "kafka": kafka.service(root / "kafka", port("kafka", values)),
        "registry": registry.service(root / "registry", port("registry", values)),
        "thrift": thrift_server.service(root / "thrift", from_environment(values)),
        "mail": mail.service(root / "mail", port("mail", values)),
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
