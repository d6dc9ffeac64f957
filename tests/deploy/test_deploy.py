"""The files of deploy/ are true of this product: its variables, its commands, and what refers to what.

`make lint` holds them against the schemas of Docker Compose and Kubernetes.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_dbt.project import Project
from python_jobs import cli
from python_jobs.commands.configuration import variables
from tests.support.services.secured import Authority
from tests.support.variables import NOT_FOR_PEOPLE

DEPLOY = PROJECT_ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "lakehouse"}
OBJECTS = [
    resource for file in (DEPLOY / "kubernetes").rglob("*.yaml") for resource in yaml.safe_load_all(file.read_text())
]
# What the executors' JVM gets: python_common/config/connections.py.
FOR_JAVA = {"KAFKA_SASL_JAAS_CONFIG"}


def kind(*kinds: str) -> dict[str, Any]:
    """Return the objects of some kinds by name."""
    return {resource["metadata"]["name"]: resource for resource in OBJECTS if resource["kind"] in kinds}


def pods() -> dict[str, Any]:
    """Return the pods that Kubernetes and Spark make, by the name of their first container."""
    values_of = [yaml.safe_load(kind("ConfigMap")["files"]["data"]["executor.yaml"])]
    for controller in kind("StatefulSet", "CronJob").values():
        values_of.append((controller["spec"].get("jobTemplate") or controller)["spec"]["template"])
    return {pod["spec"]["containers"][0]["name"]: pod for pod in values_of}


def test_every_variable_exists() -> None:
    others = COMPOSE["services"].keys() - OURS.keys()
    of_others = {name for service in others for name in COMPOSE["services"][service].get("environment", ())}
    texts = "\n".join(file.read_text() for file in DEPLOY.rglob("*") if file.is_file())
    named = {*re.findall(r"\b(?:LAKEHOUSE|KAFKA|SCHEMA_REGISTRY)_[A-Z_]*[A-Z]\b", texts)}
    assert len(named & variables().keys()) > 15
    assert named - of_others - variables().keys() - NOT_FOR_PEOPLE - FOR_JAVA == set()


def test_every_command_exists() -> None:
    commands = [" ".join(service["command"]) for service in OURS.values() if "entrypoint" not in service]
    commands += [" ".join(pod["spec"]["containers"][0].get("args", [])) for pod in pods().values()]
    pages = [DEPLOY / "README.md", DEPLOY / "review" / "producer.yml", PROJECT_ROOT / "docs" / "deploy.md"]
    texts = [file.read_text() for file in [*UNITS, *pages]]
    commands += [line for text in texts for line in re.findall(r"(?:^|bin/|`)lakehouse ([a-z][^`#\n|]*)", text, re.M)]
    assert len(commands) > 8
    for name, *arguments in map(str.split, filter(None, commands)):
        assert name in cli.COMMANDS, name
        command, rest = cli.load(name), arguments
        while rest and rest[0] in getattr(command, "commands", {}):
            command, rest = command.commands[rest[0]], rest[1:]
        assert not rest or rest[0].startswith("-") or not getattr(command, "commands", {}), rest
        # The arguments are read as when it is run, and nothing runs.
        with command.make_context(name, rest):
            pass


@pytest.mark.parametrize("service", ["thrift", "weekly"])
def test_the_settings_of_containers_are_accepted(service: str, tmp_path: Path) -> None:
    assert Settings.of(OURS[service]["environment"]).catalog_uri.startswith("jdbc:postgresql:")
    (container,) = pods()[service]["spec"]["containers"]
    given = dict.fromkeys(kind("Secret")["environment"]["stringData"], "user:secret")
    given |= kind("ConfigMap")["environment"]["data"]
    given |= {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    certificate, key = (authority := Authority(tmp_path / "ca")).issue("thrift")
    files = {"ca.crt": authority.ca, "tls.crt": certificate, "tls.key": key}
    real = {f"/run/lakehouse/{name}": str(path) for name, path in files.items()}
    settings = Settings.of({name: real.get(value, value) for name, value in given.items()})
    assert settings.thrift_security.is_on
    assert bool(settings.thrift_security.key) == (service == "thrift")


def test_an_image_which_has_no_git_names_its_commit(tmp_path: Path) -> None:
    assert Project(tmp_path, {"LAKEHOUSE_GIT_COMMIT": "abc"}).commit() == "abc"
    assert Project(tmp_path, {}).commit() is None
