"""One configuration of the catalog: what Spark and PyIceberg get of it, and what is refused."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from python_common.catalog.catalog import load_catalog
from python_common.catalog.catalog_properties import (
    SAFE_JDBC,
    for_python,
    for_spark,
    is_on_one_machine,
    read_properties,
)
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.failure import to_user_error

POSTGRESQL = "jdbc:postgresql://h:5433/d?user=lake&sslmode=require"
REST = "https://h/api/catalog"


def on(settings: Settings, uri: str, properties: str, mode: int = 0o600, warehouse: str = "lake") -> Settings:
    """Return settings of a catalog with a file of properties."""
    path = settings.home.parent / "catalog.properties"
    path.write_text(properties)
    path.chmod(mode)
    return settings.changed(catalog_uri=uri, warehouse=warehouse, catalog_properties=path)


@pytest.fixture
def settings(offline_settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a lake in a directory."""
    return offline_settings.changed(home=tmp_path / "home")


def test_both_get_one_postgresql_and_its_password(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "p@ss/word")
    named = on(settings, POSTGRESQL, "jdbc.password = env:LAKE_PASSWORD\nclients 7\njdbc.socketTimeout = 30")
    spark = for_spark(named)
    assert spark["catalog-impl"] == SAFE_JDBC
    assert "type" not in spark  # Iceberg refuses both
    assert (spark["uri"], spark["jdbc.password"], spark["clients"]) == (POSTGRESQL, "p@ss/word", "7")
    url = make_url(for_python(named)["uri"])
    assert (url.drivername, url.host, url.port, url.database) == ("postgresql+psycopg2", "h", 5433, "d")
    login = {"user": "lake", "password": "p@ss/word"}
    assert url.query == {**login, "sslmode": "require", "connect_timeout": "10"}
    assert for_python(named)["pool_pre_ping"] == "true"
    assert "p@ss/word" not in repr(named)


def test_a_lake_with_a_store_elsewhere_is_not_on_one_machine(settings: Settings) -> None:
    fork = on(settings, settings.catalog_uri, "io-impl org.apache.iceberg.io.ResolvingFileIO")
    assert is_on_one_machine(settings)
    assert not is_on_one_machine(fork)


def test_what_pyiceberg_names_otherwise_is_renamed(settings: Settings) -> None:
    named = on(
        settings, REST, "s3.path-style-access true\nrest.auth.type = sigv4\nscope = PRINCIPAL_ROLE:ALL\n# comment\n\n"
    )
    both = {"uri": REST, "warehouse": "lake", "scope": "PRINCIPAL_ROLE:ALL"}
    assert for_spark(named).items() >= {**both, "type": "rest", "s3.path-style-access": "true"}.items()
    renamed = {"s3.force-virtual-addressing": "false", "rest.sigv4-enabled": "true"}
    assert for_python(named).items() >= {**both, **renamed}.items()


def test_the_catalog_gives_tokens_unless_a_server_is_named(settings: Settings) -> None:
    for derived in (for_spark, for_python):
        by_default = derived(on(settings, f"{REST}/", "credential = a:b"))
        assert by_default["oauth2-server-uri"] == f"{REST}/v1/oauth/tokens"
        properties = derived(on(settings, REST, "token = a\noauth2-server-uri = https://login/tokens"))
        assert properties["oauth2-server-uri"] == "https://login/tokens"
        assert "oauth2-server-uri" not in derived(on(settings, REST, "rest.auth.type = sigv4"))


@pytest.mark.parametrize(
    ("uri", "lines", "words"),
    [
        ("http://h/api", "credential = a:b", "credential of LAKEHOUSE_CATALOG_PROPERTIES .* LAKEHOUSE_CATALOG_URI"),
        (REST, "token = a\noauth2-server-uri = http://login/t", "token of LAKEHOUSE_CATALOG_PROPERTIES .*_PROPERTIES"),
    ],
)
def test_a_secret_is_not_sent_in_the_clear(settings: Settings, uri: str, lines: str, words: str) -> None:
    for derived in (for_spark, for_python):
        with pytest.raises(UserError, match=words):
            derived(on(settings, uri, lines))
        assert derived(on(settings, "http://127.0.0.1:8181", "credential = a:b"))["credential"] == "a:b"


@pytest.mark.parametrize(
    ("lines", "mode", "words"),
    [
        ("scope = a", 0o640, "is open to others. Run `chmod 600"),
        ("type = hive", 0o600, "sets type. Remove it: LAKEHOUSE_CATALOG_URI sets it"),
        ("token = env:NOBODY_SET_IT", 0o600, "NOBODY_SET_IT, which .* refers to, is not set"),
        ("a = b\ntoken =", 0o600, "Line 2 of .* is not a name and a value"),
    ],
)
def test_a_file_that_is_wrong_is_named(settings: Settings, lines: str, mode: int, words: str) -> None:
    for derived in (for_spark, for_python):
        with pytest.raises(UserError, match=words):
            derived(on(settings, REST, lines, mode))


def test_a_file_that_is_missing_is_named(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere cannot be read \(FileNotFoundError\)\. Correct LAKEHOUSE_CATALOG_"):
        for_spark(settings.changed(catalog_properties=tmp_path / "nowhere"))


def test_a_value_may_hold_what_ends_a_name(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a=b=c\n  d   e f  \nheader.X-A = x, y=z\nspark.master spark://h:7077\n")
    expected = {"a": "b=c", "d": "e f", "header.X-A": "x, y=z", "spark.master": "spark://h:7077"}
    assert read_properties(path, "X") == expected


@pytest.mark.parametrize(
    ("uri", "cause"),
    [
        ("jdbc:postgresql://127.0.0.1:1/d?user=lake", "Connection refused"),
        ("jdbc:postgresql://no.such.host.invalid/d?user=lake", "could not translate host name"),
        ("http://127.0.0.1:1", "ConnectionError"),
    ],
)
def test_a_server_that_is_away_is_reported_by_its_cause(settings: Settings, uri: str, cause: str) -> None:
    away = settings.changed(catalog_uri=uri)
    with pytest.raises(Exception) as raised:
        load_catalog(away)
    message = str(to_user_error(raised.value, away))
    assert message.startswith(f"The catalog at {uri} is unavailable ({cause}"), message
    assert "that its server runs, and user, password or token" in message
    assert "\n" not in message


def test_an_invalid_postgresql_address_is_refused_with_the_cause(settings: Settings) -> None:
    with pytest.raises(UserError, match=r'invalid connection option "prepareThreshold".*LAKEHOUSE_CATALOG_URI'):
        load_catalog(settings.changed(catalog_uri="jdbc:postgresql://127.0.0.1:1/d?prepareThreshold=0"))
