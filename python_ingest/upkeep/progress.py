"""How far a topic is landed: the exporter's only question to the ingester."""

from pyiceberg.catalog import Catalog

from lakehouse import property_keys
from lakehouse.settings import Settings
from python_ingest.kafka.broker import Broker
from python_ingest.landing import offsets
from python_ingest.landing.offsets import PositionReader


def unread_partitions(
    settings: Settings, catalog: Catalog, topic: str, bronze: tuple[str, str], wait: float
) -> set[int]:
    """Return the partitions with offsets that the topic's bronze table lacks: all, if the topic was recreated.

    Raises:
        UserError: the broker does not answer within `wait` seconds, or its offsets do not continue the table's.
    """
    table = catalog.load_table(bronze)
    position = PositionReader().read(table)
    state = Broker(settings, wait).describe(topic)
    if table.properties.get(property_keys.TOPIC_ID) != state.topic_id:
        return {*position.next_offsets, *state.end}
    return {span.partition for span in offsets.waiting(position, state)}
