"""Records of three customers in a topic, and the erasure of one of them."""

import pyarrow.parquet as pq

from python_common.catalog.catalog import load_catalog
from python_ingest.maintenance import erase
from python_ingest.maintenance.erase import Person
from python_ingest.maintenance.purge import Purged, erased_at, purge_table
from tests.support.topic_fixture import TopicFixture, record

PERSON = "anna.archer@example.org"


def produce(topic: TopicFixture, count: int = 9) -> None:
    """Produce records of three customers, one of each in every partition, with personal data everywhere."""
    schema_id = topic.register(record("visit", who=record("who", id="int", mail="string")))
    for index in range(count):
        mail = PERSON if index % 3 == 1 else f"someone.else.{index % 3}@example.org"
        value = topic.encode(schema_id, {"who": {"id": index % 3, "mail": mail}})
        topic.produce(value, index // 3 % 3, key=mail.encode(), headers={"mail": mail.encode()})
    topic.flush()


def erased(topic: TopicFixture, *persons: Person) -> list[int]:
    catalog = load_catalog(topic.settings)
    to_erase = erase.find(catalog, [topic.declaration], persons or (Person("customer", "1"),))
    return [erase.erase(catalog, topic.spark, rows, "erase-test") for rows in to_erase]


def assert_verified(topic: TopicFixture, records: int, erased_rows: int) -> None:
    report = topic.verify(decoded=True)
    assert report.issues == []
    assert (report.records, report.erased, report.decoded) == (records, erased_rows, records - erased_rows)
    assert f"{erased_rows} erased rows" in report.line()


def purged(topic: TopicFixture) -> Purged:
    name = topic.declaration.identifier
    at = erased_at(load_catalog(topic.settings), topic.spark, name)
    return purge_table(load_catalog(topic.settings), topic.spark, name, at)


def files_of_person(topic: TopicFixture) -> set[str]:
    """Return the files of the table in which the person is, by their values and by their bytes."""
    files = set()
    for file in topic.directory.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            if file.suffix == ".parquet":
                content += repr(pq.ParquetFile(file).read().to_pydict()).encode()
            files |= {str(file)} if PERSON.encode() in content else set()
    return files
