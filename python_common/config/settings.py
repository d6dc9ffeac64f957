"""Addresses and paths: the settings that more than one part reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field, model_validator

from python_common.config import environment
from python_common.config.security import KafkaSecurity, RegistrySecurity, ThriftSecurity
from python_common.config.variables import Count, Duration, Flag, MalformedError, Port, Variables, for_exports, variable

CATALOG_NAME = "lake"
THRIFT_USER = "lakehouse"


SECRET_WORDS = ("credential", "password", "secret", "token")


def is_secret(name: str) -> bool:
    """Return whether a setting of this name is a secret."""
    return any(word in name.lower() for word in SECRET_WORDS)


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
    catalog_properties: AbsolutePath | None = variable(
        "LAKEHOUSE_CATALOG_PROPERTIES",
        "a 0600 file of lines `name = value`: more properties of the catalog, by the names that Iceberg gives them. A"
        " value `env:NAME` is that of a variable",
        None,
    )
    spark_conf: AbsolutePath | None = variable(
        "LAKEHOUSE_SPARK_CONF",
        "a file of Spark properties that lie over those of `conf/spark-defaults.conf`",
        None,
        read_by="ingest, weekly, erase, stack, thrift",
    )
    home: AbsolutePath = variable(
        "LAKEHOUSE_HOME",
        "state of the local stack, locks, Spark's logs, and `errors.log`",
        factory=environment.home,
        default_text="`.lakehouse`",
    )
    topics_at_once: Count = variable(
        "LAKEHOUSE_INGEST_TOPICS_AT_ONCE", "how many topics are landed at the same time", "3", read_by="ingest, weekly"
    )
    records_per_task: Count = variable(
        "LAKEHOUSE_INGEST_RECORDS_PER_TASK",
        "how many records of a batch are worth a task of Spark, and a file; beyond two tasks a core, tasks grow",
        "50000",
        read_by="ingest, weekly",
    )
    export_root: Annotated[str, AfterValidator(_bucket)] | None = for_exports(
        "LAKEHOUSE_EXPORT_ROOT",
        "where weekly files are published: a directory, or `s3://bucket/prefix`, reached with the standard `AWS_*`"
        " variables",
        None,
        default_text="must be set",
    )
    export_staging: AbsolutePath = for_exports(
        "LAKEHOUSE_EXPORT_STAGING",
        "with `s3://`: a local directory for files that are not public yet",
        factory=lambda before: before["home"] / "export-staging",
        default_text="`export-staging` in `LAKEHOUSE_HOME`",
    )
    export_url: Annotated[str, AfterValidator(_web)] = for_exports(
        "LAKEHOUSE_EXPORT_URL", "where the export root is on the web, for links in mails", ""
    )
    export_bom: Flag = for_exports(
        "LAKEHOUSE_EXPORT_BOM",
        "`true`: files begin with a byte order mark, for older spreadsheets",
        "false",
    )
    export_delay: Duration = for_exports(
        "LAKEHOUSE_EXPORT_DELAY",
        "how long after its end late records of a week are waited for: [operations.md](operations.md)",
        "0s",
    )
    export_grace: Duration = for_exports(
        "LAKEHOUSE_EXPORT_GRACE",
        "how long after its end a week waits for a topic without newer records, unless the topic's"
        " `config.meta.kafka.silence` states: [operations.md](operations.md)",
        "24h",
    )
    pii_key_file: Path | None = variable(
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
    thrift_bind: str = variable(
        "LAKEHOUSE_THRIFT_BIND",
        "the address that a Thrift server listens on that is started here, if clients reach it by another name; beyond"
        " loopback it has to speak TLS",
        "",
        read_by="stack, thrift",
        default_text="`LAKEHOUSE_THRIFT_HOST`",
    )
    thrift_password: str = variable(
        "LAKEHOUSE_THRIFT_PASSWORD",
        "password of the Spark Thrift server",
        "",
        read_by="dbt, weekly, export, erase, stack, thrift",
        secret=True,
    )
    thrift_security: ThriftSecurity = Field(default_factory=ThriftSecurity)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.registry_security.require_fit(self.schema_registry_url)
        return self


class Ports(Variables):
    """A port for each service of the local stack but its Thrift server, on 127.0.0.1."""

    kafka: Port = variable("LAKEHOUSE_KAFKA_PORT", "port of the local stack's broker", "9092", read_by="stack")
    kafka_controller: Port = variable(
        "LAKEHOUSE_KAFKA_CONTROLLER_PORT", "port of its controller", "9093", read_by="stack"
    )
    registry: Port = variable(
        "LAKEHOUSE_REGISTRY_PORT", "port of the local stack's schema registry", "8081", read_by="stack"
    )
    mail: Port = variable("LAKEHOUSE_MAIL_PORT", "port of the local stack's mail server", "1025", read_by="stack")


def from_environment(env: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of an environment, else of this process and the env file; raises as `Variables.of`."""
    return Settings.of(environment.environment() if env is None else env)
