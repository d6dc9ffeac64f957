"""A topic whose schemas a registry has, without a broker: how the schemas of its batches are resolved."""

from dataclasses import dataclass
from typing import Any

from python_common.config.settings import Settings
from python_ingest.bronze.schema_state import SchemaState
from python_ingest.declare.spark_types import children, in_spark
from python_ingest.declare.topics import Declaration
from python_ingest.kafka.registry import Registry
from python_ingest.landing.schemas import TopicSchemas
from tests.support.services.schema_registry import Registrations

Outcome = tuple[dict[int, str | None], dict[str, str]]


@dataclass
class RegisteredTopic:
    """What a registry has of a topic."""

    settings: Settings
    declaration: Declaration
    registrations: Registrations

    @property
    def registry(self) -> Registry:
        return Registry(self.settings, 10)

    def register(self, schema_id: int, schema: Any, *subjects: str) -> None:
        """Register a schema, by default as one of the topic's values."""
        self.registrations.register(schema_id, schema, *subjects or (f"{self.declaration.topic}-value",))

    def schemas(self, **changes: Any) -> TopicSchemas:
        """Return what resolves the schemas, in a new process."""
        return TopicSchemas(self.registry, self.declaration, **changes)

    def state(self, schema_ids: list[int]) -> SchemaState:
        """Return the state of a table that knows these."""
        return self.schemas().resolve_schemas(SchemaState(), schema_ids).state

    def outcome(self, batches: list[list[int]], restarts: bool = False) -> Outcome:
        """Return what is wrong with each schema id, None for what lands, and the types of the columns."""
        state, reasons = SchemaState(), dict[int, str | None]()
        schemas = self.schemas()
        for batch in batches:
            decoders = schemas.resolve_schemas(state, batch, (), 100)
            state = decoders.state
            for schema_id in batch:
                reasons[schema_id] = decoders.value.rejected.get(schema_id)
                assert reasons[schema_id] or schema_id in decoders.value.writers
            if restarts:
                schemas = self.schemas()
        return reasons, {name: in_spark(column) for name, column in children(state.columns).items()}
