"""The local stack as a person uses it: up, up again, status, down; and what happens when it cannot start."""

import json
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from python_common.config.environment import changed_environment, env_file, home, read_env_file
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.process import Service, free_ports
from python_common.spark import thrift
from python_common.spark.spark_conf import CLASS_ARCHIVE
from python_dev.stack import kafka
from python_dev.stack.stack import ADDRESSES, SERVICES, port, replace_busy_ports, variables, write_env
from python_dev.stack.temporary import FOREIGN, own_environment, running
from tests.support.commands import run_lakehouse
from tests.support.services.interpreted import INTERPRETED

pytestmark = pytest.mark.integration


def pids() -> dict[str, str]:
    return {path.name: path.read_text() for path in home().glob("*/*.pid")}


def test_a_developers_store_and_catalog_do_not_reach_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = ("AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "PGPASSFILE", "PYICEBERG_CATALOG__LAKE__URI", "SPARK_CONF_DIR")
    for name in foreign:
        monkeypatch.setenv(name, "a developer's")
    with own_environment(tmp_path):
        assert not set(foreign) & set(os.environ)
    assert set(foreign) <= set(os.environ)
    # Except variables that a caller passes: the archive of classes is written that way.
    with running(tmp_path, more={"SPARK_CONF_DIR": "here", **INTERPRETED}):
        assert os.environ["SPARK_CONF_DIR"] == "here"
        # Services are started with what the env file has.
        assert read_env_file(env_file()).items() >= INTERPRETED.items()


def test_up_a_second_time_starts_nothing(stack: Settings) -> None:
    before = pids()
    again = run_lakehouse("stack", "up")
    assert again.returncode == 0
    assert again.stderr.count("already running") == 4
    assert pids() == before


@pytest.mark.skipif(not CLASS_ARCHIVE.exists(), reason="this Java keeps no class archive")
def test_the_thrift_server_starts_from_the_class_archive(stack: Settings) -> None:
    pid, _ = (home() / "thrift" / "thrift.pid").read_text().split()
    assert str(CLASS_ARCHIVE) in Path(f"/proc/{pid}/maps").read_text()


def test_status_names_every_address(stack: Settings) -> None:
    status = run_lakehouse("stack", "status", "--json")
    assert status.returncode == 0
    assert json.loads(status.stdout) == {
        "kafka": stack.kafka_bootstrap_servers,
        "registry": stack.schema_registry_url,
        "thrift": f"{stack.thrift_host}:{stack.thrift_port}",
        "mail": f"127.0.0.1:{os.environ['LAKEHOUSE_SMTP_PORT']}",
        "catalog_uri": stack.catalog_uri,
        "warehouse": stack.warehouse,
        "export_root": stack.export_root,
    }


@pytest.mark.parametrize("password", ["", "wrong"])
def test_the_thrift_server_refuses_clients_without_the_password(stack: Settings, password: str) -> None:
    with (
        pytest.raises(UserError, match="refused the password"),
        thrift.connect(stack.changed(thrift_password=password)),
    ):
        pass


def test_no_setting_is_in_a_log_or_the_process_list(stack: Settings) -> None:
    logs = [path.read_text(errors="replace") for path in home().glob("*/*.log*")]
    assert len(logs) >= 4
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert not any(stack.thrift_password in text for text in (*logs, *commands))
    [server] = [command for command in commands if "HiveThriftServer2" in command and str(home()) in command]
    assert stack.catalog_uri not in server


def open_to_others(directory: Path) -> list[str]:
    """Return what a directory holds, and itself, that others than the owner may read, enter or write."""
    paths = [directory, *directory.rglob("*")]
    return [str(path) for path in paths if not path.is_symlink() and path.stat().st_mode & 0o077]


def test_what_the_services_write_is_private(stack: Settings) -> None:
    table, files = f"private_{secrets.token_hex(4)}", home() / "export-staging" / "private"
    files.parent.mkdir(exist_ok=True)
    with thrift.connect(stack) as cursor:
        thrift.rows(cursor, f"create table lake.default.{table} using iceberg as select id from range(3)")
        thrift.rows(cursor, f"insert overwrite directory 'file:{files}' using csv select 1")
    assert list(Path(stack.warehouse, "default", table).rglob("*.parquet"))
    assert list(files.glob("*.csv"))
    services = [home() / name for name in ("kafka", "registry", "thrift", "mail")]
    assert all(directory.is_dir() for directory in services)
    private = [*services, Path(stack.warehouse, "default", table), files]
    assert [path for directory in private for path in open_to_others(directory)] == []
    assert home().stat().st_mode & 0o077 == 0
    assert env_file().stat().st_mode & 0o077 == 0


def test_services_listen_on_loopback_only(stack: Settings) -> None:
    for name, line in pids().items():
        process = psutil.Process(int(line.split()[0]))
        listening = [
            connection.laddr.ip
            for member in [process, *process.children(recursive=True)]
            for connection in member.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert listening, name
        assert set(listening) <= {"127.0.0.1", "::ffff:127.0.0.1"}, name


@pytest.fixture
def no_ports_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without an env file, and no variable of a stack."""
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def busy() -> Iterator[dict[str, str]]:
    """For each service the address, by its variable, of another program."""
    with ExitStack() as programs:
        addresses = {}
        for variable, address, _ in ADDRESSES.values():
            program = programs.enter_context(socket.socket())
            program.bind(("127.0.0.1", 0))
            program.listen()
            addresses[variable] = address.format(program.getsockname()[1])
        yield addresses


def test_busy_ports_that_are_set_are_all_named(
    no_ports_set: Path, busy: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LAKEHOUSE_SMTP_PORT", "KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL"):
        monkeypatch.setenv(name, busy[name])
    refused = run_lakehouse("stack", "up", "--only", "registry", "--only", "mail")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"error: In use by other programs: SCHEMA_REGISTRY_URL={busy['SCHEMA_REGISTRY_URL']},"
        f" LAKEHOUSE_SMTP_PORT={busy['LAKEHOUSE_SMTP_PORT']}. Name free ports in SCHEMA_REGISTRY_URL and"
        " LAKEHOUSE_SMTP_PORT; a variable that is not set gets one."
    )
    assert not no_ports_set.exists()


def test_every_busy_port_that_is_not_set_is_replaced(
    no_ports_set: Path, busy: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    write_env(busy)
    with changed_environment({}):
        replace_busy_ports(SERVICES)
        values = variables(SERVICES)
    ports = {service: port(service, values) for service in SERVICES}
    assert len({*ports.values()} - {port(service, busy) for service in SERVICES}) == len(SERVICES)
    for service, (variable, address, _) in ADDRESSES.items():
        assert values[variable] == address.format(ports[service])
    assert caplog.messages == [
        f"port {port(service, busy)} is in use by another program: {variable} is {values[variable]}"
        for service, (variable, *_) in ADDRESSES.items()
    ]


@pytest.mark.parametrize(
    ("service", "env"),
    [
        ("kafka", {"KAFKA_BOOTSTRAP_SERVERS": "broker.example.com:9096"}),
        ("registry", {"SCHEMA_REGISTRY_URL": "https://registry.example.com:8099/apis/ccompat/v7"}),
        ("mail", {"LAKEHOUSE_SMTP_HOST": "mail.example.com", "LAKEHOUSE_SMTP_PORT": "587"}),
        ("thrift", {"LAKEHOUSE_THRIFT_PORT": ""}),
    ],
)
def test_a_port_elsewhere_is_not_the_local_one(service: str, env: dict[str, str]) -> None:
    assert port(service, env) == ADDRESSES[service][2]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        *(("LAKEHOUSE_THRIFT_PORT", number, f"is {number}. Name a port") for number in ("http", "0", "65536")),
        ("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:kafka", "is 127.0.0.1:kafka. Name a port"),
        ("LAKEHOUSE_THRIFT_TLS", "yes", "is 'yes'"),
    ],
)
def test_an_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, error: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"{name} {error}"):
        variables(())


def test_a_broker_that_cannot_format_its_directory_reports_why(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(UserError, match=r"cannot be formatted: No available log directories to format\. Correct"):
        kafka.service(tmp_path, *free_ports(1)).start()


def test_a_process_that_dies_at_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such setting: colour')"]
    service = Service("demo", tmp_path, lambda: command, ports={}, answers=lambda: False)
    service.log.write_text("a value of an earlier life\n")
    with pytest.raises(UserError, match=r"(?s)demo died at start.*no such setting: colour") as died:
        service.start()
    assert "earlier life" not in str(died.value)
    assert (tmp_path / "demo.log.1").read_text() == "a value of an earlier life\n"


def test_a_pid_that_belongs_to_a_stranger_is_left_alone(tmp_path: Path) -> None:
    service = Service("demo", tmp_path, lambda: [], ports={}, answers=lambda: True)
    service.pid_file.write_text(f"{os.getpid()} 1.0")
    assert service.process() is None
    assert service.stop() is False


@pytest.mark.slow
def test_down_stops_what_up_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LAKEHOUSE_") or name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    [free] = free_ports(1)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", f"127.0.0.1:{free}")
    started = run_lakehouse("stack", "up", "--only", "kafka")
    assert started.returncode == 0, started.stderr
    pid = int((tmp_path / "kafka" / "kafka.pid").read_text().split()[0])
    assert psutil.pid_exists(pid)
    assert "kafka: stopped" in run_lakehouse("stack", "down").stdout
    assert not psutil.pid_exists(pid)
    assert "kafka: was not running" in run_lakehouse("stack", "down").stdout
    assert run_lakehouse("stack", "status").returncode == 1


@pytest.mark.slow
def test_a_command_on_a_temporary_stack_finds_sample_data(tmp_path: Path) -> None:
    program = (
        "from python_common.catalog.catalog import load_catalog; from python_common.config.settings import *;"
        "s = from_environment(); print(load_catalog(s).load_table('bronze.payments').scan().count(), s.home); exit(7)"
    )
    options = ("--orders", "20", "--weeks", "1")
    ran = run_lakehouse("stack", "temporary", *options, "--", sys.executable, "-c", program)
    assert ran.returncode == 7, ran.stderr
    rows, directory = ran.stdout.splitlines()[-1].split()
    assert int(rows) > 0
    assert not Path(directory).exists()
    assert not [process for process in psutil.process_iter(["cmdline"]) if directory in str(process.info["cmdline"])]
