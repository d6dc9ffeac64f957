"""The broker: one Kafka node in KRaft mode, on loopback."""

import subprocess
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from python_common.config.environment import TARGET
from python_common.errors import UserError
from python_common.process import Service, free_ports
from python_common.spark import java

JARS = TARGET / "kafka"


def service(directory: Path, port: int) -> Service:
    """Return the broker; its data is under `directory`, without retention (records may be years old)."""
    return Service(
        name="kafka",
        directory=directory,
        command=lambda: _prepare(directory, port),
        ports={"KAFKA_BOOTSTRAP_SERVERS": port},
        answers=lambda: _answers(port),
    )


def _prepare(directory: Path, port: int) -> list[str]:
    # No client speaks to the controller, so any port does, another one after each start.
    [controller_port] = free_ports(1)
    properties = directory / "server.properties"
    properties.write_text(
        f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory / "data"}
log.retention.ms=-1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
    )
    java_command = [java.executable(), "-Xmx512m", "-cp", f"{JARS}/*"]
    if not (directory / "data" / "meta.properties").exists():
        storage_tool = [*java_command, "kafka.tools.StorageTool"]
        cluster_id = str(uuid.uuid4())
        command = [*storage_tool, "format", "-t", cluster_id, "-c", str(properties)]
        formatted = subprocess.run(command, capture_output=True, text=True, check=False)
        if formatted.returncode:
            message = formatted.stderr.strip().partition("\n")[0].rstrip(".")
            raise UserError(
                f"kafka's data directory cannot be formatted: {message}", f"Correct {directory}, or delete it"
            )
    return [*java_command, "kafka.Kafka", str(properties)]


def _answers(port: int) -> bool:
    # A client that finds no broker logs it on stderr; while polling, that is expected.
    client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
