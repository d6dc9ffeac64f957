"""Kafka admin client: a topic's identity, and the offsets that a committed reader may see."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]  # no __all__
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, wait_exponential

from python_common.config import connections
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_ingest.kafka.offset_range import OffsetRange

REQUEST_SECONDS = 5.0
# How often a waiting request checks whether authentication failed.
LOOK_SECONDS = 0.2
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client has no types here
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # nor here
# The client's errors, and those that Kafka's Java client calls retriable, without the error of a missing topic.
PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FETCH_SESSION_ID_NOT_FOUND,
        KafkaError.INVALID_FETCH_SESSION_EPOCH,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
    }
)
Key = TypeVar("Key")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TopicState:
    """One topic at one moment.

    `begin` and `end` map each partition to its first offset and to the offset after the last one
    that a read_committed consumer may see.
    """

    topic: str
    topic_id: str
    cluster_id: str
    begin: dict[int, int]
    end: dict[int, int]


class Broker:
    """An admin client that waits for a broker that is away, up to `wait` seconds per question.

    Each method raises a UserError if the broker rejects the request or this client, or does not answer.
    """

    def __init__(self, settings: Settings, wait: float) -> None:
        self._servers = settings.kafka_bootstrap_servers
        self._wait = wait
        self._to_check = ""
        self._client = AdminClient({**connections.kafka_client(settings)}, error_cb=self._note)

    def check(self) -> None:
        """Raise a UserError unless the broker answers."""
        self._ask("", lambda: {"cluster": self._client.describe_cluster(request_timeout=REQUEST_SECONDS)})

    def describe(self, topic: str) -> TopicState:
        """Return the topic's identity and offsets; a UserError if there is no such topic."""
        return self._describe(topic, [topic])[topic]

    def describe_all(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """Return the states of those topics that the broker has, in a few requests whatever their number.

        `describe` names the error of another, or waits until it is over.
        """
        with suppress(KafkaException, UserError):
            known = self._client.list_topics(timeout=REQUEST_SECONDS).topics
            existing = {name: known[name] for name in topics if name in known}
            healthy = [
                name
                for name, topic in existing.items()
                if not topic.error and not any(partition.error for partition in topic.partitions.values())
            ]
            return self._describe("", healthy) if healthy else {}
        return {}

    def _describe(self, topic: str, topics: list[str]) -> dict[str, TopicState]:
        """Return the states of topics; `topic` is the one that an error is of."""
        wait = {"request_timeout": REQUEST_SECONDS}
        cluster = self._ask(topic, lambda: {"cluster": self._client.describe_cluster(**wait)})["cluster"]
        described = self._ask(topic, lambda: self._client.describe_topics(TopicCollection(topics), **wait))
        partitions = [TopicPartition(name, partition.id) for name in topics for partition in described[name].partitions]
        begin, end = (self._offsets(topic, partitions, spec) for spec in (EARLIEST, LATEST))
        return {
            name: TopicState(name, str(described[name].topic_id), str(cluster.cluster_id), begin[name], end[name])
            for name in topics
        }

    def offsets_at(self, topic: TopicState, moment: datetime) -> dict[int, int]:
        """Return the offset of each partition's first record stamped at a moment or later, else the partition's end."""
        partitions = [TopicPartition(topic.topic, partition) for partition in topic.end]
        offsets = self._offsets(topic.topic, partitions, OffsetSpec.for_timestamp(int(moment.timestamp() * 1000)))
        return {part: topic.end[part] if offset < 0 else offset for part, offset in offsets[topic.topic].items()}

    def is_compacted(self, topic: str) -> bool:
        """Return whether the log cleaner removes records of a topic that have a later one of their key."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        configs = self._ask(topic, lambda: self._client.describe_configs([resource], request_timeout=REQUEST_SECONDS))
        return "compact" in str(configs[resource]["cleanup.policy"].value)

    def beyond_last_stable_offset(self, topic: TopicState) -> list[OffsetRange]:
        """Return the offsets that an open transaction keeps from a committed reader, without empty ranges."""
        partitions = [TopicPartition(topic.topic, partition) for partition in topic.end]
        # In this order: records produced in between must not look as if a transaction were open.
        ends = self._offsets(topic.topic, partitions, LATEST, IsolationLevel.READ_UNCOMMITTED)[topic.topic]
        stable = self._offsets(topic.topic, partitions, LATEST)[topic.topic]
        return [OffsetRange(part, stable[part], end) for part, end in ends.items() if end > stable[part]]

    def _offsets(
        self,
        topic: str,
        partitions: list[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[str, dict[int, int]]:
        wanted = dict.fromkeys(partitions, spec)
        limits = {"isolation_level": isolation, "request_timeout": REQUEST_SECONDS}
        answers = self._ask(topic, lambda: self._client.list_offsets(wanted, **limits))
        offsets: dict[str, dict[int, int]] = defaultdict(dict)
        for topic_partition, answer in answers.items():
            offsets[topic_partition.topic][topic_partition.partition] = answer.offset
        return offsets

    def _ask(self, topic: str, question: Callable[[], dict[Key, Future[Result]]]) -> dict[Key, Result]:
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, KafkaException) and passing(error.args[0])),
            stop=stop_before_delay(self._wait),
            wait=wait_exponential(0.2, max=5),
            before=self._forget,
            reraise=True,
        )
        try:
            return retrying(lambda: {key: self._answer(future) for key, future in question().items()})
        except SystemError:
            # A signal while the client runs: it loses the exception, and fails without a reason.
            raise KeyboardInterrupt from None
        except KafkaException as error:
            kafka_error: KafkaError = error.args[0]
            if kafka_error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise UserError(
                    f"The topic '{topic}' does not exist on {self._servers}",
                    "Create it, or remove its declaration from the dbt source",
                ) from None
            if not passing(kafka_error):
                raise UserError(
                    f"Kafka at {self._servers} refused: {kafka_error.name()}",
                    "Check the address and the permissions of this user",
                ) from None
            raise UserError(
                f"Kafka at {self._servers} does not answer ({kafka_error.name()})",
                "Check KAFKA_BOOTSTRAP_SERVERS, KAFKA_SECURITY_PROTOCOL and `lakehouse stack status`",
            ) from None

    def _forget(self, _: RetryCallState) -> None:
        """Forget the errors of earlier requests: they may be over."""
        self._client.poll(0)
        self._to_check = ""

    def _answer(self, future: Future[Result]) -> Result:
        """Wait for an answer. A client whose authentication fails retries without end, so it is stopped here."""
        # A signal that interrupts Future.result may become a RuntimeError of the future's lock.
        answered: SimpleQueue[Future[Result]] = SimpleQueue()
        future.add_done_callback(answered.put)
        while True:
            try:
                return answered.get(timeout=LOOK_SECONDS).result()
            except Empty:
                # Runs the callback for errors.
                self._client.poll(0)
            if self._to_check:
                raise UserError(f"Authentication with Kafka at {self._servers} failed", f"Check {self._to_check}")

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            self._to_check = "KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD and KAFKA_SASL_MECHANISM"
        self._to_check = self._to_check or connections.tls_settings_hint("KAFKA", error.str())


def passing(error: KafkaError) -> bool:
    """Return whether an error is transient: of a connection, an election, or a broker that has just started."""
    # librdkafka marks few of the broker's errors as retriable.
    return error.retriable() or error.code() in PASSING
