"""An error is reported by its true cause, in one line, without anything that was read; only damage is called damage."""

import os
import re
import resource
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import UnauthorizedError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema

from python_common.catalog.catalog import is_unavailable, load_catalog, translate_read_errors
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.failure import error_log, to_user_error
from python_jobs import cli
from tests.support.services.http_server import Handler, serving

CARD = "4111111111111111"


@contextmanager
def answering(status: int, body: str = "") -> Iterator[str]:
    """Serve one answer to every request; yield the URL."""

    class Answering(Handler):
        def do_GET(self) -> None:
            self.answer(status, body.encode())

        do_HEAD = do_POST = do_GET

    with serving(Answering) as url:
        yield url


def read(url: str) -> None:
    store = {"s3.endpoint": url, "s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.region": "us-east-1"}
    store |= {"s3.connect-timeout": "1"}
    with PyArrowFileIO(store).new_input("s3://lake/table/metadata.json").open() as file:
        file.read()


def test_a_file_that_cannot_be_opened_now_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("whole")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = os.open("/dev/null", os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 1, hard))
    cause = r"^X cannot be read \(EMFILE\)\. Nothing is lost"
    try:
        with pytest.raises(UserError, match=cause), translate_read_errors("X"):
            PyArrowFileIO().new_input(str(tmp_path / "file")).open()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(opened)


@pytest.mark.parametrize(
    ("status", "cause"),
    [(503, r"AWS Error \w+"), (403, "AWS Error ACCESS_DENIED|EACCES"), (0, "AWS Error NETWORK_\\w+")],
)
def test_an_object_store_that_refuses_is_not_called_damaged(status: int, cause: str) -> None:
    with answering(status or 200) as url:
        address = url if status else "http://127.0.0.1:1"
        with pytest.raises(UserError) as reported, translate_read_errors("X"):
            read(address)
    assert re.match(rf"X cannot be read \(({cause}|PermissionError)\)\.", str(reported.value)), reported.value


def test_what_is_missing_or_damaged_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), path)
    content = path.read_bytes()
    for damaged in (None, b"", content[:99], content[:200] + bytes(len(content) - 220) + content[-20:]):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"^X is missing or damaged"), translate_read_errors("X"):
            pq.read_table(path)


def test_a_catalog_in_trouble_is_reported_by_its_cause(offline_settings: Settings) -> None:
    settings = offline_settings.changed(catalog_uri=f"{offline_settings.catalog_uri}?busy_timeout=10")
    path = Path(settings.catalog_uri.removeprefix("jdbc:sqlite:").partition("?")[0])
    catalog = load_catalog(settings, create=True)
    catalog.create_namespace("bronze")

    def reported() -> str:
        with pytest.raises(Exception) as raised:
            load_catalog(settings).create_table("bronze.t", Schema())
        assert is_unavailable(raised.value)
        return str(to_user_error(raised.value, settings, "orders"))

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        assert reported().startswith(f"orders: The catalog at {settings.catalog_uri} is locked by another program")
        other.execute("rollback")
        other.execute("drop table iceberg_tables")
    assert "is unavailable (SQLITE_ERROR)" in reported()
    # Another file: a process has the catalog of a file once.
    path.unlink()
    path.write_bytes(b"no database, " * 1000)
    assert "is damaged (SQLITE_NOTADB). Restore it from a backup" in reported()


def test_a_catalog_behind_http_is_reported_by_its_cause(offline_settings: Settings) -> None:
    with answering(401) as url, pytest.raises(UnauthorizedError) as raised:
        RestCatalog("lake", uri=url)
    assert "is unavailable (UnauthorizedError)" in str(to_user_error(raised.value, offline_settings))


def test_no_word_of_an_unexpected_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))

    def fail(arguments: list[str]) -> None:
        try:
            {}[CARD]
        except KeyError as error:
            raise ValueError(CARD) from error

    monkeypatch.setattr(cli, "app", fail)
    # Its thread would end the worker at a signal of another test.
    monkeypatch.setattr(cli, "end_at_sigterm", lambda: None)
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"^1$"):
            cli.main()
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.partition(" ")[2] == (
            f"error: Unexpected error: ValueError. Run it again, and report it with the end of {error_log()}.\n"
        )
    log = error_log().read_text()
    assert log.count("builtins.ValueError\n") == log.count("builtins.KeyError\n") == 2
    assert f"in {fail.__name__}\n" in log
    assert CARD not in log
    assert stat.S_IMODE(error_log().stat().st_mode) == 0o600


def test_an_error_that_cannot_be_recorded_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "file"))
    assert str(to_user_error(ValueError(CARD))).startswith("Unexpected error: ValueError. Run it again")
