"""Spark's configuration: the user's file overrides ours, and missing jars are an error with its remedy."""

import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from python_common.config.security import KafkaSecurity
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.spark import java, spark_conf, thrift_server


def last_values(path: Path) -> dict[str, str]:
    """Return the properties of a file as Spark reads it: a line wins over those before it."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    # Java ends a name at the first white space or equals sign, and allows one equals sign between white space.
    pairs = [re.fullmatch(r"([^\s=]+)(?:\s*=\s*|\s+)(.*)", line) for line in lines]
    return {pair[1]: pair[2].strip() for pair in pairs if pair}


@pytest.fixture
def configured(offline_settings: Settings, tmp_path: Path) -> Settings:
    """Settings with a file of Spark properties."""
    file = tmp_path / "own.conf"
    file.write_text("spark.sql.shuffle.partitions = 48\nspark.master spark://h:7077\nspark.authenticate.secret \\s\n")
    file.chmod(0o600)
    return offline_settings.changed(spark_conf=file)


def test_the_users_file_overrides_the_defaults(configured: Settings, tmp_path: Path) -> None:
    written = spark_conf.write_properties(
        configured, tmp_path / "spark.properties", {"spark.authenticate.secret": "=:other"}
    )
    assert written.stat().st_mode & 0o777 == 0o600
    properties = last_values(written)
    assert properties["spark.sql.shuffle.partitions"] == "48"
    # A value may begin with what separates it from its name.
    assert properties["spark.authenticate.secret"] == "=:other"
    assert properties["spark.sql.session.timeZone"] == "UTC"
    assert properties["spark.sql.ansi.enabled"] == "true"
    assert properties["spark.sql.catalog.lake.uri"] == configured.catalog_uri
    assert r"secret=\\s" in spark_conf.write_properties(configured, tmp_path / "other.properties").read_text()


def test_java_options_of_the_user_leave_the_limits_of_avro(configured: Settings, tmp_path: Path) -> None:
    """As Spark's launcher builds the command of a driver."""
    configured.spark_conf.write_text("spark.driver.extraJavaOptions -Dmine=1\n")
    properties = spark_conf.write_properties(configured, tmp_path / "spark.properties")
    [jar] = spark_conf.SPARK_HOME.glob("jars/spark-launcher_*.jar")
    launcher = ["-cp", str(jar), "org.apache.spark.launcher.Main"]
    submit = ["org.apache.spark.deploy.SparkSubmit", "--properties-file", str(properties), "pyspark-shell"]
    command = subprocess.run(
        [java.executable(), *launcher, *submit],
        env=spark_conf.process_environment(configured, properties) | {"SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "\0-Dmine=1\0" in command
    assert "-Dorg.apache.avro.limits.bytes.maxLength=67108864" in command


def test_only_a_driver_with_local_executors_is_kept_to_loopback(
    configured: Settings, offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    assert spark_conf.process_environment(offline_settings)["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert spark_conf.process_environment(configured)["SPARK_LOCAL_IP"] == "10.0.0.1"


def test_java_unpacks_libraries_where_execution_is_allowed(
    offline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, noexec = offline_settings.home / "tmp", set[Path]()
    flags = {True: os.ST_NOEXEC | os.ST_NOSUID, False: os.ST_NOSUID}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flags[path in noexec]))
    for forbidden, expected in (((), None), ((spark_conf.JAVA_TMP,), f"-Djava.io.tmpdir={scratch}")):
        noexec.update(forbidden)
        options = spark_conf.process_environment(offline_settings)["SPARK_SUBMIT_OPTS"].split()
        assert [option for option in options if "tmpdir" in option] == [expected] * bool(expected)
    noexec.add(scratch)
    with pytest.raises(UserError, match=f"Neither /tmp nor {scratch} allows execution"):
        spark_conf.process_environment(offline_settings)


def test_executors_get_secrets_by_their_environment(
    configured: Settings, offline_settings: Settings, tmp_path: Path
) -> None:
    sasl = KafkaSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="u", password="two\nlines")
    name = "spark.executorEnv.KAFKA_SASL_JAAS_CONFIG"
    assert spark_conf._of_executors(offline_settings.changed(kafka_security=sasl)) == {}
    given = spark_conf._of_executors(configured.changed(kafka_security=sasl))
    assert list(given) == [name]
    # A line is a property, so a line break must not end it.
    login = last_values(spark_conf.write_properties(configured, tmp_path / "p", given))[name]
    assert "plain.PlainLoginModule" in login
    assert login.endswith(r'password="two\nlines";')
    configured.spark_conf.write_text(
        "spark.master k8s://h\nspark.kubernetes.executor.secretKeyRef.KAFKA_SASL_JAAS_CONFIG = kafka:jaas\n"
    )
    assert spark_conf._of_executors(configured.changed(kafka_security=sasl)) == {}


def test_a_file_with_a_secret_is_its_owners_alone(configured: Settings) -> None:
    configured.spark_conf.chmod(0o644)
    with pytest.raises(UserError, match=r"LAKEHOUSE_SPARK_CONF names, is open to others. .*chmod 600"):
        spark_conf.configuration(configured)
    configured.spark_conf.write_text("spark.sql.shuffle.partitions = 48\n")
    assert spark_conf.configuration(configured)["spark.sql.shuffle.partitions"] == "48"


def test_a_server_can_be_stopped_whose_configuration_is_gone(configured: Settings, tmp_path: Path) -> None:
    configured.spark_conf.unlink()
    assert not thrift_server.service(tmp_path, configured).stop()


def test_the_catalog_is_configured_in_one_place(configured: Settings) -> None:
    configured.spark_conf.write_text("spark.sql.catalog.lake.uri = jdbc:sqlite:/other.db\n")
    with pytest.raises(UserError, match=r"sets spark\.sql\.catalog\.lake\.uri\. .*LAKEHOUSE_CATALOG_PROPERTIES"):
        spark_conf.configuration(configured)


def test_a_lake_on_servers_needs_more_jars(
    offline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_conf, "CLUSTER_DIR", tmp_path / "cluster")
    spark_conf.require_jars(offline_settings)
    on_servers = offline_settings.changed(catalog_uri="jdbc:postgresql://h/d?user=lake")
    with pytest.raises(UserError, match="Run `make setup EXTRAS=cluster`"):
        spark_conf.require_jars(on_servers)
    assert f"{tmp_path}/cluster/*" in spark_conf.process_environment(on_servers)["SPARK_DIST_CLASSPATH"]
    assert "SPARK_DIST_CLASSPATH" not in spark_conf.process_environment(offline_settings)


FEW, MANY = 2_000_000, 20_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "join"), [(FEW, "ShuffledHashJoin"), (MANY, "SortMergeJoin")])
def test_only_a_join_of_few_rows_needs_a_side_in_memory(spark: SparkSession, rows: int, join: str) -> None:
    """Sides too large to broadcast; many such rows compress so well that a hash join of them runs out of memory."""
    compiled = spark.newSession()
    compiled.conf.set("spark.sql.codegen.wholeStage", True)
    compiled.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    left = compiled.range(rows).selectExpr("id", "id * 3 as value")
    right = compiled.range(rows).selectExpr("id", "id * 5 as other")
    joined = left.join(right, "id").selectExpr("sum(value + other)")
    assert joined.collect() == [(8 * sum(range(rows)),)]
    assert join in joined._jdf.queryExecution().executedPlan().toString()


@pytest.mark.slow
def test_a_join_of_buckets_leaves_tables_below_it_complete(spark: SparkSession) -> None:
    """Spark would cut the orders to the buckets that hold an item: most items would have no order."""
    session = spark.newSession()
    session.sql("create schema if not exists lake.small")
    session.sql("use lake.small")
    keys = "id bigint, order_id bigint"
    session.sql(f"create table items ({keys}) using iceberg partitioned by (bucket(16, id))")
    session.sql(f"create table orders ({keys}) using iceberg partitioned by (bucket(16, order_id))")
    session.sql("insert into items values (1, 1), (2, 50), (3, 77)")
    session.sql("insert into orders select id, id from range(100)")
    joined = """
        select ordered.id, ordered.order_id, known.id
        from (
            select items.id, orders.order_id
            from items
            left join (select order_id from orders where id >= 0) as orders on items.order_id = orders.order_id
        ) as ordered
        full outer join (select distinct id from items) as known on ordered.id = known.id
        order by 1
    """
    assert session.sql(joined).collect() == [(1, 1, 1), (2, 50, 2), (3, 77, 3)]
    for table in ("items", "orders"):
        session.sql(f"drop table {table}")
