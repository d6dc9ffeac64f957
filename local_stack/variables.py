"""The ports of the local stack; that of its Thrift server is a setting, for others connect to it too."""

from lakehouse.variables import Port, Variables, variable


class Ports(Variables):
    """A port for each service, on 127.0.0.1."""

    kafka: Port = variable("LAKEHOUSE_KAFKA_PORT", "port of the local stack's broker", "9092", read_by="stack")
    kafka_controller: Port = variable(
        "LAKEHOUSE_KAFKA_CONTROLLER_PORT", "port of its controller", "9093", read_by="stack"
    )
    registry: Port = variable(
        "LAKEHOUSE_REGISTRY_PORT", "port of the local stack's schema registry", "8081", read_by="stack"
    )
    mail: Port = variable("LAKEHOUSE_MAIL_PORT", "port of the local stack's mail server", "1025", read_by="stack")
