"""A catalog in PostgreSQL, as PyIceberg sees it: trouble is reported by its cause, and a lost reply loses nothing."""

from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from python_common.catalog.catalog import load_catalog
from python_common.config.settings import Settings
from python_common.failure import to_user_error
from tests.support.race import IDS, committed_at_once, ids
from tests.support.services.postgres import PASSWORD, LossyWay, Postgres


def test_a_process_has_one_catalog_and_keeps_one_connection(
    settings: Settings, postgres: Postgres, database: str
) -> None:
    catalog = load_catalog(settings)
    catalog.create_namespace("bronze")
    for _ in range(20):
        assert load_catalog(settings) is catalog
        assert load_catalog(settings).namespace_exists("bronze")
    assert postgres.clients(database) == 1


def test_a_connection_that_ended_is_no_error_of_the_next_command(
    settings: Settings, postgres: Postgres, database: str
) -> None:
    catalog = load_catalog(settings)
    catalog.create_namespace("bronze")
    with postgres.connection() as connection, connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (database,))
    assert catalog.namespace_exists("bronze")


@pytest.mark.parametrize("losses", [["reply"], ["request"], ["reply", "reply"], ["request", "reply"]])
def test_a_commit_of_pyiceberg_that_is_lost_is_there_or_not_but_never_half(
    settings: Settings, postgres: Postgres, database: str, losses: list[str]
) -> None:
    way = LossyWay(postgres.port, b"COMMIT")
    catalog = load_catalog(settings.changed(catalog_uri=postgres.address(database, way.port)))
    catalog.create_namespace("bronze")
    catalog.create_table("bronze.t", IDS).append(ids(0))
    direct, count = load_catalog(settings), 100
    for loss in losses:
        way.losses.append(loss)
        with pytest.raises(OperationalError):
            catalog.load_table("bronze.t").append(ids(count))
        assert way.losses == []
        count += 100 if loss == "reply" else 0
        committed_ids = direct.load_table("bronze.t").scan().to_arrow()["id"].to_pylist()
        assert sorted(committed_ids) == list(range(count))
    catalog.load_table("bronze.t").append(ids(count))
    assert direct.load_table("bronze.t").scan().to_arrow().num_rows == count + 100
    way.close()


def test_of_commits_at_once_one_wins(settings: Settings) -> None:
    won, committed = committed_at_once(load_catalog(settings), "bronze.t", writers=6)
    assert committed == won
    assert won


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("user=lake", "user=nobody", 'password authentication failed for user "nobody"'),
        ("/lake_", "/no_lake_", 'database "no_lake_'),
    ],
)
def test_a_server_that_refuses_is_reported_by_its_cause(settings: Settings, old: str, new: str, cause: str) -> None:
    wrong = settings.changed(catalog_uri=settings.catalog_uri.replace(old, new))
    with pytest.raises(OperationalError) as raised:
        load_catalog(wrong)
    message = str(to_user_error(raised.value, wrong))
    assert message.startswith(f"The catalog at {wrong.catalog_uri} is unavailable ({cause}"), message


def test_a_user_without_rights_gets_the_reason(
    settings: Settings, postgres: Postgres, database: str, tmp_path: Path
) -> None:
    load_catalog(settings).create_namespace("bronze")
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        cursor.execute(f"create user reader_{database} password 'read'")
        cursor.execute(f"grant select on all tables in schema public to reader_{database}")
    file = tmp_path / "reader.properties"
    file.write_text("jdbc.password = read\n")
    file.chmod(0o600)
    reader = settings.changed(
        catalog_uri=settings.catalog_uri.replace("user=lake", f"user=reader_{database}"), catalog_properties=file
    )
    assert load_catalog(reader).namespace_exists("bronze")
    with pytest.raises(Exception) as raised:
        load_catalog(reader).create_namespace("silver")
    assert "is unavailable (InsufficientPrivilege)" in str(to_user_error(raised.value, reader))


def test_a_server_that_is_full_is_reported_by_its_cause(settings: Settings, postgres: Postgres, database: str) -> None:
    with postgres.connection() as connection, connection.cursor() as cursor:
        cursor.execute(f"alter database {database} connection limit 0")
        cursor.execute(f"create user guest_{database} password %s", (PASSWORD,))
    guest = settings.catalog_uri.replace("user=lake", f"user=guest_{database}")
    wrong = settings.changed(catalog_uri=guest)
    with pytest.raises(OperationalError) as raised:
        load_catalog(wrong)
    assert f'(too many connections for database "{database}")' in str(to_user_error(raised.value, wrong))
