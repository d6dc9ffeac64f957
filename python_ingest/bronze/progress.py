"""How far a topic is landed: the exporter's only question to the ingester."""

from pyiceberg.catalog import Catalog

from python_common.catalog import property_keys
from python_common.config.settings import Settings
from python_ingest.bronze import positions
from python_ingest.bronze.positions import PositionReader
from python_ingest.kafka.admin import Broker


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
    return {span.partition for span in positions.waiting(position, state)}
