"""How far a topic is landed, for those who build on it: the one question that the exporter asks the ingester."""

from pyiceberg.catalog import Catalog

from lakehouse import property_keys
from lakehouse.settings import Settings
from python_ingest.kafka.broker import Broker
from python_ingest.landing import offsets
from python_ingest.landing.offsets import PositionReader


def unread_partitions(
    settings: Settings, catalog: Catalog, topic: str, bronze: tuple[str, str], wait: float
) -> set[int]:
    """Return the partitions of which the broker has anything that the topic's bronze table lacks.

    These are all, if the table was filled from another topic of that name.

    Raises:
        UserError: the broker does not tell within `wait` seconds, or its offsets do not continue the table's.
    """
    table = catalog.load_table(bronze)
    position = PositionReader().read(table)
    state = Broker(settings, wait).describe(topic)
    if table.properties.get(property_keys.TOPIC_ID) != state.topic_id:
        return {*position.next_offsets, *state.end}
    return {span.partition for span in offsets.waiting(position, state)}
