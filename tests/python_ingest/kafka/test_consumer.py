"""What the broker answers a reader of records instead of records."""

import pytest
from confluent_kafka import KafkaError, Message

from python_common.config.settings import Settings
from python_common.errors import UserError
from python_ingest.kafka import consumer
from python_ingest.kafka.offset_range import OffsetRange

TRANSIENT, DENIED = KafkaError._TRANSPORT, KafkaError.TOPIC_AUTHORIZATION_FAILED


class CommitConflict(consumer.Consumer):
    """A consumer without rights to its group: such an error belongs to no partition and has no offset."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        return [Message(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))]


def test_a_transient_error_is_no_answer_and_others_are() -> None:
    errors = {code: consumer.is_passing(Message(error=KafkaError(code))) for code in (TRANSIENT, DENIED)}
    assert errors == {TRANSIENT: True, DENIED: False}
    assert not consumer.is_passing(Message(value=b"a record"))


def test_an_error_of_the_consumer_itself_is_named(offline_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "Consumer", CommitConflict)
    with pytest.raises(UserError, match="GROUP_AUTHORIZATION_FAILED"):
        list(consumer.read_records(offline_settings, "t", OffsetRange(0, 0, 5), 5))
