"""A statement that takes too long is ended, on the server too."""

import pytest

from python_common.config.settings import Settings
from python_common.errors import DeadlineError
from python_common.spark import spark_sql, thrift

pytestmark = pytest.mark.slow


def test_a_statement_that_takes_too_long_is_ended(stack: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thrift, "STATEMENT_SECONDS", 10.0)
    forever = "select count(*) from range(1000000000000) where sqrt(id) = -1"
    with (
        pytest.raises(DeadlineError, match="has not ended within 10 s"),
        thrift.connect(stack) as cursor,
    ):
        spark_sql.run(cursor, forever, "count for ever")
    # The server has ended it too, and works for others; on a busy machine not at once.
    monkeypatch.undo()
    with thrift.connect(stack) as cursor:
        assert thrift.rows(cursor, "select 1") == [(1,)]
