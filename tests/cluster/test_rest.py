"""A REST catalog behind OAuth2 or signed requests, its tables in S3: commits, refusals, and messages of trouble."""

import os
from pathlib import Path
from uuid import uuid4

import pytest

from python_common.catalog.catalog import _on_server, load_catalog, load_table
from python_common.config.settings import Settings
from python_common.failure import to_user_error
from python_ingest.bronze import tables
from python_ingest.declare.topics import Declaration
from tests.support.commands import run_lakehouse
from tests.support.race import IDS, committed_at_once, ids
from tests.support.services.spark_jvm import separate_session
from tests.support.services.weed import KEY, SECRET, TABLE_BUCKET, Weed

KINDS = ["oauth2", "sigv4"]
OAUTH2 = "credential = env:LAKE_CREDENTIAL\nscope = catalog"
SIGV4 = "rest.auth.type = sigv4\nrest.signing-region = us-east-1\nrest.signing-name = s3tables"
REFUSALS = [(OAUTH2, "OAuthError"), (SIGV4, "ForbiddenError")]


@pytest.fixture(params=[OAUTH2, SIGV4], ids=KINDS)
def settings(
    request: pytest.FixtureRequest,
    weed: Weed,
    offline_settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Settings:
    """Settings of the catalog behind REST: its credential is a variable, the store's are AWS's."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in weed.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LAKE_CREDENTIAL", f"{KEY}:{SECRET}")
    return offline_settings.changed(
        catalog_uri=weed.catalog,
        warehouse=f"s3://{TABLE_BUCKET}",
        catalog_properties=properties(tmp_path, request.param),
    )


def properties(directory: Path, lines: str) -> Path:
    path = directory / "catalog.properties"
    path.write_text(f"{lines}\n")
    path.chmod(0o600)
    return path


def test_a_table_is_made_at_the_location_of_the_server_and_read_again(settings: Settings) -> None:
    catalog = load_catalog(settings)
    catalog.create_namespace_if_not_exists("bronze")
    name = f"orders_{uuid4().hex}"
    made = tables.create(catalog, Declaration("shop.orders", "bronze", name, "string", "dead_letter"))
    assert made.location().startswith(f"s3://{TABLE_BUCKET}")
    loaded = load_table(catalog, f"bronze.{name}")
    assert loaded is not None
    assert loaded.metadata.table_uuid == made.metadata.table_uuid
    assert load_table(catalog, "bronze.other") is None


def test_of_commits_at_once_no_row_is_lost_or_doubled(settings: Settings) -> None:
    won, committed = committed_at_once(load_catalog(settings), f"bronze.race_{uuid4().hex}", writers=4)
    assert committed == won
    assert won


@pytest.mark.parametrize(("settings", "cause"), REFUSALS, ids=KINDS, indirect=["settings"])
def test_a_catalog_that_refuses_the_login_is_reported_by_its_cause(
    settings: Settings, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_CREDENTIAL", f"{KEY}:wrong")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    _on_server.cache_clear()
    with pytest.raises(Exception) as raised:
        load_catalog(settings).list_namespaces()
    message = str(to_user_error(raised.value, settings))
    assert message.startswith(f"The catalog at {settings.catalog_uri} is unavailable ({cause})"), message
    assert "wrong" not in message


@pytest.mark.parametrize("settings", [OAUTH2], ids=KINDS[:1], indirect=True)
def test_a_login_warns_of_nothing(settings: Settings, recwarn: pytest.WarningsRecorder) -> None:
    _on_server.cache_clear()
    load_catalog(settings).list_namespaces()
    assert [str(warning.message) for warning in recwarn if "OAuth2" in str(warning.message)] == []


@pytest.mark.parametrize("command", ["weekly", "export run", "erase --subject shop.customer=42"])
def test_a_catalog_without_views_is_reported_before_a_model_is_built(
    settings: Settings, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LAKEHOUSE_HOME": tmp_path / "home",
        "LAKEHOUSE_CATALOG_URI": settings.catalog_uri,
        "LAKEHOUSE_CATALOG_PROPERTIES": settings.catalog_properties,
        "LAKEHOUSE_WAREHOUSE": settings.warehouse,
        "LAKEHOUSE_EXPORT_ROOT": settings.export_root,
        "LAKEHOUSE_PII_KEY_FILE": settings.pii_key_file,
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "SCHEMA_REGISTRY_URL": settings.schema_registry_url,
    }.items():
        monkeypatch.setenv(name, str(value))
    refused = run_lakehouse(*command.split())
    assert refused.returncode == 1
    assert f"error: The catalog at {settings.catalog_uri} has no views" in refused.stderr
    assert "Use a catalog that has views" in refused.stderr


def test_spark_reads_what_python_has_written_and_the_other_way_round(settings: Settings) -> None:
    catalog, name = load_catalog(settings), f"bronze.shared_{uuid4().hex}"
    catalog.create_namespace_if_not_exists("bronze")
    catalog.create_table(name, IDS).append(ids(0))
    with separate_session(settings, "rest-tests") as spark:
        spark.sql(f"insert into lake.{name} select id + 100 from lake.{name}")
        assert spark.table(f"lake.{name}").count() == 200
    assert catalog.load_table(name).scan().to_arrow().num_rows == 200
