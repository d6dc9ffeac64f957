"""Writer schemas by id from the schema registry: fetched once, waited for when it is away."""

import time
from dataclasses import dataclass

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from lakehouse import connections
from lakehouse.errors import UserError
from lakehouse.settings import Settings

SCHEMA_NOT_FOUND = 40403
ATTEMPTS_WHEN_UNKNOWN = 3
REQUEST_SECONDS = 5


@dataclass(frozen=True)
class Registered:
    """A schema as registered: its kind (AVRO, JSON, PROTOBUF), its text, and whether it refers to
    schemas of other subjects."""

    kind: str
    text: str
    has_references: bool


class Registry:
    """Schemas by id. An outage is waited for, up to `wait` seconds; it never looks like a 404."""

    def __init__(self, settings: Settings, wait: float) -> None:
        self._url = settings.schema_registry_url
        self._wait = wait
        self._client = SchemaRegistryClient(
            {**connections.registry_client(settings), "max.retries": 0, "timeout": REQUEST_SECONDS}
        )
        self._cache: dict[int, Registered] = {}

    def schema(self, schema_id: int) -> Registered | None:
        """Return the schema, or None if the registry says that it has no such id.

        "Unknown" is asked again twice, because a replica may lag behind a producer, and is not
        remembered, because the schema may be registered later.

        Raises:
            UserError: the registry is unreachable, turns this client away, or answers what is no registry's.
        """
        if schema_id in self._cache:
            return self._cache[schema_id]
        deadline = time.monotonic() + self._wait
        unknown = 0
        pause = 0.2
        while True:
            try:
                schema = self._client.get_schema(schema_id)
            except SchemaRegistryError as error:
                if error.http_status_code == 404 and error.error_code == SCHEMA_NOT_FOUND:
                    unknown += 1
                    if unknown == ATTEMPTS_WHEN_UNKNOWN:
                        return None
                elif error.http_status_code < 500 and error.http_status_code != 429:
                    raise UserError(
                        f"The schema registry at {self._url} answered {error.http_status_code}",
                        "Check SCHEMA_REGISTRY_URL, SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"
                        " and SCHEMA_REGISTRY_BEARER_AUTH_TOKEN",
                    ) from None
                else:
                    self._give_up_after(deadline, f"HTTP {error.http_status_code}")
            except Exception as error:  # whatever the client's HTTP library raises
                if to_check := connections.to_check("SCHEMA_REGISTRY", str(error)):
                    raise UserError(
                        f"Authentication with the schema registry at {self._url} failed", f"Check {to_check}"
                    ) from None
                self._give_up_after(deadline, type(error).__name__)
            else:
                registered = Registered(
                    kind=schema.schema_type or "AVRO",
                    text=schema.schema_str or "",
                    has_references=bool(schema.references),
                )
                self._cache[schema_id] = registered
                return registered
            time.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _give_up_after(self, deadline: float, reason: str) -> None:
        if time.monotonic() > deadline:
            raise UserError(
                f"The schema registry at {self._url} does not answer ({reason})",
                "Check SCHEMA_REGISTRY_URL and `lakehouse stack status`",
            ) from None
