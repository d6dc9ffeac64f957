"""The properties of the catalog for Spark and for PyIceberg, made of the same settings.

The scheme of LAKEHOUSE_CATALOG_URI gives its kind. A file may add properties by Iceberg's names; those that PyIceberg
names differently are renamed here. No commit spans tables.
"""

import re
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url

from python_common.config.environment import environment
from python_common.config.security import require_secret_way
from python_common.config.settings import Settings
from python_common.errors import UserError

FILE = Settings.variable("catalog_properties")
DECIDED = {"uri": "catalog_uri", "warehouse": "warehouse", "type": "catalog_uri", "catalog-impl": "catalog_uri"}
"""The fields of Settings that decide a property, which the file may not set."""
SAFE_JDBC = "org.apache.iceberg.jdbc.SafeJdbcCatalog"
CONNECT_SECONDS = "10"
FLIPPED = {"true": "false", "false": "true"}
SEPARATOR = re.compile(r"\s*=\s*|\s+")


class Kind(Enum):
    """How a catalog is reached, by what its address begins with."""

    SQLITE = "jdbc:sqlite:"
    POSTGRESQL = "jdbc:postgresql:"
    REST = "http"


def sqlite_uri(directory: Path) -> str:
    """Return the address of a catalog in SQLite, in a separate directory."""
    return f"jdbc:sqlite:{directory / 'catalog.db'}?journal_mode=WAL&busy_timeout=30000"


def kind(settings: Settings) -> Kind:
    """Return what kind of catalog the settings name."""
    return next(member for member in Kind if settings.catalog_uri.startswith(member.value))


def is_on_one_machine(settings: Settings) -> bool:
    """Return whether the lake needs nothing but this machine's files; a fork may read those of a store in S3."""
    is_local = kind(settings) is Kind.SQLITE and urlsplit(settings.warehouse).scheme in ("", "file")
    return is_local and "io-impl" not in of_file(settings)


def for_spark(settings: Settings) -> dict[str, str]:
    """Return the properties of Spark's catalog; a UserError if the file of properties is invalid."""
    of_kind = {
        Kind.SQLITE: {"type": "jdbc", "jdbc.schema-version": "V1"},
        # A statement whose reply is lost is sent again by Iceberg's class: a table can be lost by that.
        Kind.POSTGRESQL: {"catalog-impl": SAFE_JDBC, "jdbc.schema-version": "V1", "clients": "4"},
        Kind.REST: {"type": "rest"},
    }[kind(settings)]
    address = {"uri": settings.catalog_uri, "warehouse": settings.warehouse}
    from_file = of_file(settings)
    return {**of_kind, **of_store(settings), **_of_login(settings, from_file), **from_file, **address}


def for_python(settings: Settings) -> dict[str, str]:
    """Return the properties of PyIceberg's catalog; raises as `for_spark`. The address of a SQLite is its opener's."""
    from_file = {**of_store(settings), **of_file(settings)}
    properties = {
        **_of_login(settings, from_file),
        **from_file,
        "warehouse": settings.warehouse,
        "uri": settings.catalog_uri,
    }
    if kind(settings) is Kind.POSTGRESQL:
        properties |= {"uri": _sqlalchemy(settings.catalog_uri, from_file), "pool_pre_ping": "true"}
    if path_style := from_file.get("s3.path-style-access"):
        properties["s3.force-virtual-addressing"] = FLIPPED.get(path_style.lower(), path_style)
    if from_file.get("rest.auth.type") == "sigv4":
        properties["rest.sigv4-enabled"] = "true"
    return properties


def _of_login(settings: Settings, from_file: dict[str, str]) -> dict[str, str]:
    """Return the token endpoint of a catalog behind OAuth2: below the catalog's address, unless the file sets it.

    Raises:
        UserError: its secret would be sent in the clear.
    """
    secrets = [name for name in ("credential", "token") if name in from_file]
    if kind(settings) is not Kind.REST or not secrets:
        return {}
    tokens = from_file.get("oauth2-server-uri", f"{settings.catalog_uri.rstrip('/')}/v1/oauth/tokens")
    for variable, url in ((Settings.variable("catalog_uri"), settings.catalog_uri), (FILE, tokens)):
        require_secret_way(variable, url, f"{secrets[0]} of {FILE}")
    return {"oauth2-server-uri": tokens}


def of_store(settings: Settings) -> dict[str, str]:
    """Return endpoint and region of a lake in S3, of which PyArrow does not read all variables."""
    if not settings.warehouse.startswith("s3://") and kind(settings) is not Kind.REST:
        return {}
    properties = {}
    if kind(settings) is not Kind.REST:  # whose server decides
        properties["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    env = environment()
    if endpoint := env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL"):
        properties |= {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
    if region := env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"):
        properties["client.region"] = region
    return properties


def read_properties(path: Path, variable: str) -> dict[str, str]:
    """Return the lines `name value` or `name = value` of a file, without comments; no line goes on in the next.

    Raises:
        UserError: the file cannot be read, or a line is malformed.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__})", f"Correct {variable}") from None
    properties = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        # The first equals sign, or white space, ends the name: a value may hold both.
        name, _, value = SEPARATOR.sub("\n", line, count=1).partition("\n")
        if not value:
            raise UserError(f"Line {number} of {path} is not a name and a value", f"Correct it, or {variable}")
        properties[name] = value
    return properties


def require_closed(path: Path, variable: str) -> None:
    """Refuse a file of secrets that others may read."""
    if path.stat().st_mode & 0o077:
        raise UserError(f"{path}, which {variable} names, is open to others", f"Run `chmod 600 {path}`")


def of_file(settings: Settings) -> dict[str, str]:
    """Return the properties in the file of LAKEHOUSE_CATALOG_PROPERTIES; a UserError if it is invalid or open."""
    path = settings.catalog_properties
    if path is None:
        return {}
    properties = read_properties(path, FILE)
    require_closed(path, FILE)
    for name, field in DECIDED.items():
        if name in properties:
            raise UserError(f"{path} sets {name}", f"Remove it: {Settings.variable(field)} sets it")
    return {name: _resolved(value, path) for name, value in properties.items()}


def _resolved(value: str, path: Path) -> str:
    if not value.startswith("env:"):
        return value
    name = value.removeprefix("env:")
    resolved = environment().get(name)
    if not resolved:
        raise UserError(f"{name}, which {path} refers to, is not set", "Set it in the environment")
    return resolved


def _sqlalchemy(uri: str, from_file: dict[str, str]) -> str:
    """Return the address of a PostgreSQL for SQLAlchemy, with the same options behind the question mark."""
    url = make_url("postgresql+psycopg2:" + uri.removeprefix(Kind.POSTGRESQL.value))
    # User and password are properties of Java's driver that both have to know.
    login = {name: from_file[f"jdbc.{name}"] for name in ("user", "password") if f"jdbc.{name}" in from_file}
    url = url.update_query_dict({"connect_timeout": CONNECT_SECONDS, **url.query, **login})
    return url.render_as_string(hide_password=False)
