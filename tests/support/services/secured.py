"""Services that let in only who they know: a broker with SCRAM, TLS and client certificates, a registry behind TLS."""

import datetime as dt
import ipaddress
import ssl
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from python_common.process import Service, free_ports
from python_common.spark import java
from python_dev.stack.kafka import JARS
from tests.support.services.http_server import Handler, serving

USER = "ingester"
# With what JAAS, a shell or a configuration provider could interpret.
PASSWORD = 'scram-secret-7f3a "pa\\ss" ${env:HOME}'
AUTHORIZED = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:CN=broker;User:CN={admin}
"""
# Whether each of its nine uses is allowed: the sixth is to sign certificates.
SIGNS_CERTIFICATES = x509.KeyUsage(*(use == 5 for use in range(9)))


class Authority:
    """A certificate authority that keeps PEM files in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(self._signed("authority", self._key.public_key(), is_ca=True))

    def issue(self, name: str, password: str = "") -> tuple[Path, Path]:
        """Return the paths of a new certificate for loopback, and of its PKCS#8 key."""
        key = ec.generate_private_key(ec.SECP256R1())
        form = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, form)
        certificate, key_file = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        certificate.write_bytes(self._signed(name, key.public_key()))
        key_file.write_bytes(pem)
        return certificate, key_file

    def _signed(self, name: str, public_key: ec.EllipticCurvePublicKey, is_ca: bool = False) -> bytes:
        now = dt.datetime.now(dt.UTC)
        loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = (
            x509.CertificateBuilder(_name("authority"), _name(name), public_key, x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            # Python 3.13 refuses a certificate without them, and an authority without a use of its key.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(loopback, critical=False)
        )
        if is_ca:
            builder = builder.add_extension(SIGNS_CERTIFICATES, critical=True)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True)
class SecuredBroker:
    """The addresses of one broker: SCRAM over TLS, TLS with client certificates, SCRAM without TLS."""

    sasl_ssl: str
    mutual_tls: str
    sasl_plaintext: str


@contextmanager
def secured_broker(directory: Path, authority: Authority, admin: str = "") -> Iterator[SecuredBroker]:
    """Run a broker with one SCRAM user. If a certificate's name is given, all others may do what `grant` lets them."""
    directory.mkdir()
    certificate, key = authority.issue("broker")
    sasl_ssl, mutual_tls, sasl_plaintext, controller = (f"127.0.0.1:{port}" for port in free_ports(4))
    listeners = f"SASL_SSL://{sasl_ssl},SSL://{mutual_tls},SASL_PLAINTEXT://{sasl_plaintext}"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    properties = directory / "server.properties"
    properties.write_text(
        f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
controller.listener.names=CONTROLLER
listeners={listeners},CONTROLLER://{controller}
advertised.listeners={listeners}
listener.security.protocol.map=SASL_SSL:SASL_SSL,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={module} required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config={module} required;
listener.name.ssl.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.certificate.chain={_in_a_line(certificate)}
ssl.keystore.key={_in_a_line(key)}
ssl.truststore.type=PEM
ssl.truststore.certificates={_in_a_line(authority.ca)}
log.dirs={directory / "data"}
offsets.topic.replication.factor=1
{AUTHORIZED.format(admin=admin) if admin else ""}
"""
    )
    java_command = [java.executable(), "-Xmx512m", "-cp", f"{JARS}/*"]
    user = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
    storage_tool = [*java_command, "kafka.tools.StorageTool", "format", "-c", str(properties)]
    subprocess.run([*storage_tool, "-t", str(uuid.uuid4()), "--add-scram", user], capture_output=True, check=True)
    service = Service(
        name="kafka",
        directory=directory,
        command=lambda: [*java_command, "kafka.Kafka", str(properties)],
        ports={},
        answers=lambda: _answers(sasl_plaintext),
    )
    try:
        service.start()
        yield SecuredBroker(sasl_ssl, mutual_tls, sasl_plaintext)
    finally:
        service.stop()


def grant(admin: AdminClient, topics: str) -> None:
    """Give the SCRAM user the rights that docs/deploy.md names, on topics whose names begin so."""
    for kind, name, operation in (
        (ResourceType.TOPIC, topics, AclOperation.READ),
        (ResourceType.TOPIC, topics, AclOperation.DESCRIBE),
        (ResourceType.GROUP, "lakehouse-", AclOperation.READ),
    ):
        to = (f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
        binding = AclBinding(kind, name, ResourcePatternType.PREFIXED, *to)
        admin.create_acls([binding])[binding].result()


def _in_a_line(pem: Path) -> str:
    return pem.read_text().replace("\n", "\\n")


def _answers(servers: str) -> bool:
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD}
    address = {"bootstrap.servers": servers, "security.protocol": "SASL_PLAINTEXT"}
    try:
        return bool(AdminClient({**address, **login, "log_level": 0}).list_topics(timeout=1).brokers)
    except KafkaException:
        return False


@contextmanager
def secured_registry(upstream: str, authority: Authority, *, authorization: str, mutual: bool) -> Iterator[str]:
    """Yield the URL of a proxy that passes on requests with this Authorization header, over TLS, to a registry."""

    class Proxy(Handler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] != authorization:
                self.answer(401, b'{"error_code": 401, "message": "Unauthorized"}')
                return
            response = httpx2.get(f"{upstream}{self.path}", timeout=60)
            self.answer(response.status_code, response.content)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("registry"))
    if mutual:
        context.load_verify_locations(authority.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    with serving(Proxy, context) as url:
        yield url
