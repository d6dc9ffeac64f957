"""The end of `make setup`: the jar of the project's Java classes, and a class archive.

The archive (application class data sharing of the JVM) saves each later start of Spark seconds. A Thrift server writes
it when it ends, after SQL of the ingester's, dbt's and the export's kinds. It fits one Java and one set of jars.
"""

import tempfile
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from python_common.config import connections
from python_common.config.settings import Settings
from python_common.log import log, run_module
from python_common.spark import java, spark_conf, thrift
from python_dev.stack import compiled, temporary

SOURCES = Path(spark_conf.__file__).with_name("classes")
DUMP_SECONDS = 600
ARCHIVE_OPTIONS = f"-XX:ArchiveClassesAtExit={spark_conf.CLASS_ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"
STATEMENTS = """
create schema shop;
create table shop.orders (id int, at timestamp, name string, price decimal(12, 2), lines array<struct<sku: int>>)
    using iceberg partitioned by (bucket(4, id)) tblproperties ('write.merge.mode' = 'merge-on-read');
insert into shop.orders
    select cast(id as int), timestamp_millis(id), concat('n', id), cast(id as decimal(12, 2)),
        array(named_struct('sku', cast(id as int))) from range(2000);
create temporary view slice as
    select * from (select *, row_number() over (partition by id order by at desc) as rank from shop.orders)
    where rank = 1;
cache table slice;
merge into shop.orders as stored using (select id + 1000 as id, at, name, price, lines from slice) as slice
    on stored.id = slice.id
    when matched and struct(slice.at) > struct(stored.at) then update set * when not matched then insert *;
create or replace table shop.weekly using iceberg as
    select sha2(name, 256) as name, sum(price) as price, count(distinct at) as times from shop.orders
    left join (select posexplode(lines) as (position, line), id as line_id from shop.orders) on id = line_id
    group by name;
select max(readable_metrics.id.upper_bound) from shop.orders.files;
select lakehouse_sources('select count(*) from shop.orders');
select lakehouse_relations('shop.orders');
alter table shop.weekly set tblproperties ('a' = 'b');
show tblproperties shop.weekly;
insert overwrite directory '{directory}/csv' using csv options (header 'true')
    select * from shop.weekly order by name;
select from_avro(value, '"string"') from (select to_avro(name) as value from shop.orders);
create temporary view topic using kafka options ('kafka.bootstrap.servers' '{broker}', 'subscribe' 'orders');
select count(*) from topic
"""


def main() -> None:
    """Make the jar of the classes and the archive of classes; a UserError without Java, or if a service fails."""
    java.executable()
    compiled.make_jar(spark_conf.CLASSES_JAR, *SOURCES.glob("*.java"))
    spark_conf.CLASS_ARCHIVE.unlink(missing_ok=True)
    more = {"SPARK_SUBMIT_OPTS": ARCHIVE_OPTIONS}
    with (
        tempfile.TemporaryDirectory(prefix="lakehouse-setup-") as directory,
        temporary.running(Path(directory), "kafka", "thrift", more=more) as (settings, services),
    ):
        _load_classes(settings, directory)
        if server := services["thrift"].process():
            server.terminate()
            server.wait(DUMP_SECONDS)
    if not spark_conf.CLASS_ARCHIVE.exists():
        log.warning("this Java keeps no class archive, so Spark starts slower")


def _load_classes(settings: Settings, directory: str) -> None:
    """Run SQL of every kind on an empty Thrift server and broker, with a directory for its files."""
    client = connections.kafka_client(settings)
    admin = AdminClient(client)
    admin.create_topics([NewTopic("orders", 1)])["orders"].result()
    producer = Producer(client)
    producer.produce("orders", b"value", b"key")
    producer.flush(10)
    with thrift.connect(settings) as cursor:
        for statement in STATEMENTS.split(";"):
            thrift.rows(cursor, statement.format(directory=directory, broker=settings.kafka_bootstrap_servers))


if __name__ == "__main__":
    run_module(main)
