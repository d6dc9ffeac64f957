"""Addresses and paths: the settings that more than one part reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field, model_validator

from python_common.config import environment
from python_common.config.security import KafkaSecurity, RegistrySecurity, ThriftSecurity
from python_common.config.variables import Duration, Limit, MalformedError, Port, Variables, for_exports, variable

CATALOG_NAME = "lake"
THRIFT_USER = "lakehouse"


def is_secret(name: str) -> bool:
    """Return whether a setting of this name is a secret."""
    return any(word in name.lower() for word in ("credential", "password", "secret", "token"))


def _catalog(uri: str) -> str:
    if not uri.startswith(("jdbc:sqlite:", "jdbc:postgresql://", "http://", "https://")):
        raise MalformedError(
            "names no kind of catalog that is known",
            "Write it as jdbc:sqlite:/path/catalog.db, as jdbc:postgresql://host/database?user=name, or as"
            " https://host/path of a REST catalog",
        )
    address = urlsplit(uri.removeprefix("jdbc:"))
    try:
        address.port  # noqa: B018
    except ValueError:
        raise MalformedError("is not the address of one server", "Give one host, and its port as a number") from None
    options = parse_qs(address.query, keep_blank_values=True)
    if address.password or any(map(is_secret, options)):
        raise MalformedError(
            "holds a password, and messages quote it",
            "Put it in the file of LAKEHOUSE_CATALOG_PROPERTIES or PGPASSFILE",
        )
    return uri


def _bucket(url: str) -> str:
    if "@" in urlsplit(url).netloc:
        raise MalformedError("holds credentials, and messages quote it", "Give them as AWS_* variables")
    return url


def _web(url: str) -> str:
    if url and urlsplit(url).scheme not in {"http", "https"}:
        raise MalformedError("is not a URL", "Write it as https://host/path of the export root")
    return url


AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]
OptionalFile = Annotated[AbsolutePath | None, "a path"]


class Settings(Variables):
    """Addresses and paths, read once per process. What only some parts need is None if it is not set: `needed`."""

    kafka_bootstrap_servers: str = variable("KAFKA_BOOTSTRAP_SERVERS", "brokers, `host:port[,host:port]`")
    kafka_client_rack: str = variable(
        "KAFKA_CLIENT_RACK",
        "the rack or zone of this machine: brokers that know theirs let it read from the nearest replica",
        "",
    )
    kafka_security: KafkaSecurity = Field(default_factory=KafkaSecurity)
    schema_registry_url: str = variable("SCHEMA_REGISTRY_URL", "Confluent-compatible registry API")
    registry_timeout: Limit = variable("LAKEHOUSE_REGISTRY_TIMEOUT", "how long the registry may take to answer", "5s")
    registry_security: RegistrySecurity = Field(default_factory=RegistrySecurity)
    warehouse: str = variable(
        "LAKEHOUSE_WAREHOUSE",
        "where Iceberg keeps data and metadata: a directory, `s3://bucket/prefix`, or the name by which a REST catalog"
        " knows it",
    )
    catalog_uri: Annotated[str, AfterValidator(_catalog)] = variable(
        "LAKEHOUSE_CATALOG_URI",
        "the Iceberg catalog: `jdbc:sqlite:/path/catalog.db?journal_mode=WAL&busy_timeout=30000`,"
        " `jdbc:postgresql://host/database?user=name`, or `https://host/path` of a REST catalog:"
        " [deploy.md](deploy.md)",
    )
    catalog_properties: OptionalFile = variable(
        "LAKEHOUSE_CATALOG_PROPERTIES",
        "a 0600 file of lines `name = value`: more properties of the catalog, by the names that Iceberg gives them. A"
        " value `env:NAME` is that of a variable",
        None,
    )
    spark_conf: OptionalFile = variable(
        "LAKEHOUSE_SPARK_CONF",
        "a file of Spark properties that lie over those of `conf/spark-defaults.conf`",
        None,
        read_by="ingest, weekly, erase, stack, thrift",
    )
    home: Annotated[AbsolutePath, "a path"] = variable(
        "LAKEHOUSE_HOME",
        "state of the local stack, locks, Spark's logs, and `errors.log`",
        factory=environment.home,
        default_text="`.lakehouse`",
    )
    export_root: Annotated[str, AfterValidator(_bucket)] | None = for_exports(
        "LAKEHOUSE_EXPORT_ROOT",
        "where weekly files are published: a directory, or `s3://bucket/prefix`, reached with the standard `AWS_*`"
        " variables",
        None,
        default_text="must be set",
    )
    export_url: Annotated[str, AfterValidator(_web)] = for_exports(
        "LAKEHOUSE_EXPORT_URL", "where the export root is on the web, for links in mails", ""
    )
    export_bom: Literal["true", "false"] = for_exports(
        "LAKEHOUSE_EXPORT_BOM", "`true`: files begin with a byte order mark, for older spreadsheets", "false"
    )
    export_delay: Duration = for_exports(
        "LAKEHOUSE_EXPORT_DELAY",
        "how long after its end late records of a week are waited for: [operations.md](operations.md)",
        "0s",
    )
    pii_key_file: OptionalFile = variable(
        "LAKEHOUSE_PII_KEY_FILE",
        "the masking key: one 0600 line, made by `stack up` if it is missing. Back it up with its copies `<file>.v*`:"
        " pseudonyms of two keys do not join",
        None,
        read_by="dbt, weekly, export, erase, pii, stack",
        default_text="must be set",
    )
    thrift_host: str = variable(
        "LAKEHOUSE_THRIFT_HOST",
        "host of the Spark Thrift server",
        "127.0.0.1",
        read_by="dbt, weekly, export, erase, stack",
    )
    thrift_port: Port = variable(
        "LAKEHOUSE_THRIFT_PORT", "port of the Spark Thrift server", "10000", read_by="dbt, weekly, export, erase, stack"
    )
    thrift_password: str = variable(
        "LAKEHOUSE_THRIFT_PASSWORD",
        "password of the Spark Thrift server",
        "",
        read_by="dbt, weekly, export, erase, stack, thrift",
        secret=True,
    )
    thrift_security: ThriftSecurity = Field(default_factory=ThriftSecurity)

    @property
    def export_staging(self) -> Path:
        """The local directory of files for a bucket that are not public yet."""
        return self.home / "export-staging"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.registry_security.require_fit(self.schema_registry_url)
        return self


def from_environment(env: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of an environment, else of this process and the env file; raises as `Variables.of`."""
    return Settings.of(environment.environment() if env is None else env)
