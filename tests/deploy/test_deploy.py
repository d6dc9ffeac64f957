"""The files of deploy/ are true of this product: its variables, its commands, and what refers to what.

`make lint` holds them against the schemas of Docker Compose and Kubernetes.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from python_dbt.project import Project
from python_jobs import cli
from python_jobs.commands.configuration import variables as our_variables
from tests.python_jobs.test_configuration import NOT_FOR_PEOPLE
from tests.support.services.secured import Authority

DEPLOY = PROJECT_ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "lakehouse"}
OBJECTS = [
    resource for file in (DEPLOY / "kubernetes").rglob("*.yaml") for resource in yaml.safe_load_all(file.read_text())
]
CONTROLLERS = ("StatefulSet", "CronJob")
# What the executors' JVM gets: python_common/config/connections.py.
FOR_JAVA = {"KAFKA_SASL_JAAS_CONFIG"}


def kind(*kinds: str) -> dict[str, Any]:
    """Return the objects of some kinds by name."""
    return {resource["metadata"]["name"]: resource for resource in OBJECTS if resource["kind"] in kinds}


def pods() -> dict[str, Any]:
    """Return the pods that Kubernetes and Spark make, by the name of their first container."""
    values_of = [yaml.safe_load(kind("ConfigMap")["files"]["data"]["executor.yaml"])]
    for controller in kind(*CONTROLLERS).values():
        values_of.append((controller["spec"].get("jobTemplate") or controller)["spec"]["template"])
    return {pod["spec"]["containers"][0]["name"]: pod for pod in values_of}


def test_every_variable_exists() -> None:
    of_others = {
        name for service in COMPOSE["services"].values() if service not in OURS.values() for name in variables(service)
    }
    named = {
        name
        for file in DEPLOY.rglob("*")
        if file.is_file()
        for name in re.findall(r"\b(?:LAKEHOUSE|KAFKA|SCHEMA_REGISTRY)_[A-Z_]*[A-Z]\b", file.read_text())
    }
    assert len(named & set(our_variables())) > 15
    assert named - of_others - set(our_variables()) - NOT_FOR_PEOPLE - FOR_JAVA == set()


def variables(service: dict[str, Any]) -> dict[str, str]:
    return service.get("environment", {})


def test_every_command_exists() -> None:
    commands = [" ".join(service["command"]) for service in OURS.values() if "entrypoint" not in service]
    commands += [" ".join(pod["spec"]["containers"][0].get("args", [])) for pod in pods().values()]
    texts = [file.read_text() for file in [*UNITS, DEPLOY / "README.md", PROJECT_ROOT / "docs" / "deploy.md"]]
    commands += [line for text in texts for line in re.findall(r"(?:^|bin/|`)lakehouse ([a-z][^`#\n|]*)", text, re.M)]
    assert len(commands) > 8
    for name, *arguments in map(str.split, filter(None, commands)):
        assert name in cli.COMMANDS, name
        command, rest = cli.load(name), arguments
        while rest and rest[0] in getattr(command, "commands", {}):
            command, rest = command.commands[rest[0]], rest[1:]
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


def test_the_template_of_executors_is_a_pod_that_can_read_the_masking_key() -> None:
    executor = pods()["executor"]
    kubernetes_validate.validate(executor, "1.34", strict=True)
    (mount,) = executor["spec"]["containers"][0]["volumeMounts"]
    key_file = Path(kind("ConfigMap")["environment"]["data"]["LAKEHOUSE_PII_KEY_FILE"])
    assert Path(mount["mountPath"]) == key_file.parent
    (volume,) = executor["spec"]["volumes"]
    secret = kind("Secret")[volume["secret"]["secretName"]]
    assert {key_file.name, f"{key_file.name}.v1"} == set(secret["stringData"])


def test_what_pods_ask_for_is_there_and_secrets_have_no_value() -> None:
    secrets, maps, accounts = kind("Secret"), kind("ConfigMap"), kind("ServiceAccount")
    assert not any(value for secret in secrets.values() for value in secret["stringData"].values())
    for pod in pods().values():
        spec = pod["spec"]
        assert spec["serviceAccountName"] in accounts
        assert spec["securityContext"]["runAsNonRoot"]
        for asked, there in (("secretRef", secrets), ("configMapRef", maps), ("secret", secrets), ("configMap", maps)):
            assert {reference.get("name") or reference["secretName"] for reference in values_of(spec, asked)} <= set(
                there
            )
    configuration = maps["files"]["data"]["spark.conf"]
    for secret, key in re.findall(r"secretKeyRef\.\w+ +(\w+):(\w+)", configuration):
        assert key in secrets[secret]["stringData"]


def values_of(tree: Any, key: str) -> list[Any]:
    """Return all values of a key, however deep."""
    if isinstance(tree, dict):
        here = [tree[key]] if key in tree else []
        return here + [match for value in tree.values() for match in values_of(value, key)]
    return [match for value in tree for match in values_of(value, key)] if isinstance(tree, list) else []


def test_network_policies_are_about_pods_and_ports_that_are_there() -> None:
    components = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods().values()}
    policies = kind("NetworkPolicy")
    named = {labels["app.kubernetes.io/component"] for labels in values_of(policies, "matchLabels") if len(labels) > 1}
    assert named == components
    assert not policies["nobody-else"]["spec"]["podSelector"]
    ports = {port["containerPort"] for pod in pods().values() for port in pod["spec"]["containers"][0].get("ports", [])}
    assert set(values_of(policies, "port")) == ports == {10000, 7078, 7079}
    assert {"7078", "7079"} <= set(kind("ConfigMap")["files"]["data"]["spark.conf"].split())


def test_the_image_has_what_the_product_consists_of() -> None:
    allowed = {line[1:] for line in (DEPLOY / "image/Dockerfile.dockerignore").read_text().split() if line[0] == "!"}
    packages = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    dbt = yaml.safe_load((PROJECT_ROOT / "dbt_project.yml").read_text())
    paths = {path for name, paths in dbt.items() if name.endswith("-paths") for path in paths}
    assert {*packages["wheel"]["packages"], *paths, "conf", "dbt_project.yml", "profiles.yml", "Makefile"} <= allowed
    assert [name for name in allowed if not (PROJECT_ROOT / name).exists()] == []


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text().replace("/srv/lakehouse/.venv/bin", str(Path(sys.executable).parent))
        (tmp_path / unit.name).write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", *tmp_path.iterdir()], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_a_container_that_reads_a_secret_of_another_user_is_root() -> None:
    """Secrets are files of user 10001. SeaweedFS's entrypoint would drop root."""
    objects = COMPOSE["services"]["objects"]
    assert (objects["user"], objects["entrypoint"]) == ("0", ["weed"])


def test_each_audience_reads_its_prefix_alone() -> None:
    terraform = (DEPLOY / "terraform" / "main.tf").read_text()
    readers = terraform[terraform.index('"aws_iam_policy_document" "readers"') :].partition("\n}\n")[0]
    resources = re.findall(r'\["export"\]\.arn}(.*)"\]', readers)
    assert resources == ["/${each.value}/*"]
    assert 'values   = ["${each.value}/*"]' in readers
    assert terraform.count('/*"]') == 2 + readers.count('/*"]'), "another policy reads a whole bucket"


def test_what_fails_or_is_withheld_alerts() -> None:
    services = {unit.name: unit.read_text() for unit in UNITS if unit.suffix == ".service"}
    alert = services.pop("lakehouse-alert@.service")
    assert "%i" in alert
    for name, unit in services.items():
        assert "\nOnFailure=lakehouse-alert@%n.service\n" in unit, name
        codes = re.findall(r"^SuccessExitStatus=(.*)$", unit, re.M)
        assert {"1", "2", "3", "4"}.isdisjoint(codes[0].split()), name


def test_the_weekly_job_writes_metrics_where_they_stay_and_may_be_written() -> None:
    unit = (DEPLOY / "systemd" / "lakehouse-weekly.service").read_text()
    [file] = re.findall(r"^ExecStart=.* --metrics-file (\S+)\.prom$", unit, re.M)
    assert f"\nReadWritePaths=-{Path(file).parent}\n" in unit
    spec = pods()["weekly"]["spec"]
    (container,) = spec["containers"]
    command, option, file = container["args"]
    assert (command, option, Path(file).suffix) == ("weekly", "--metrics-file", ".prom")
    [mount] = [mount for mount in container["volumeMounts"] if Path(mount["mountPath"]) == Path(file).parent]
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == mount["name"]]
    assert volume["persistentVolumeClaim"]["claimName"] in kind("PersistentVolumeClaim")


def test_an_eviction_is_no_failure_of_a_job() -> None:
    for name, job in kind("CronJob").items():
        first, *others = job["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
        assert first == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}, name
        assert all(set(rule["onExitCodes"]["values"]) == {2, 3, 4} for rule in others)
    assert len(values_of(OBJECTS, "podFailurePolicy")) == 2


def test_images_are_always_pulled() -> None:
    lists = [*values_of(OBJECTS, "containers"), *values_of(OBJECTS, "initContainers")]
    containers = [container for listed in lists for container in listed]
    assert containers
    assert {container["imagePullPolicy"] for container in containers} == {"Always"}
    assert re.search(r"image\.pullPolicy +Always", kind("ConfigMap")["files"]["data"]["spark.conf"])


def test_a_renewed_certificate_restarts_the_thrift_server_with_it(tmp_path: Path) -> None:
    (container,) = pods()["thrift"]["spec"]["containers"]
    given, run = tmp_path / "given", tmp_path / "run"
    given.mkdir()
    run.mkdir()

    def here(command: list[str]) -> list[str]:
        paths = {"/mnt/given": str(given), "/run/lakehouse": str(run), "exec tini -- deploy/image/entrypoint": "echo"}
        for path, ours in paths.items():
            command = [word.replace(path, ours) for word in command]
        return command

    # The probe of the port needs a server.
    probe = [word.partition(" && ")[0] for word in here(container["livenessProbe"]["exec"]["command"])]
    for certificate in ("first", "renewed"):
        (given / "tls.crt").write_text(certificate)
        assert subprocess.run(probe, capture_output=True, check=False).returncode
        started = subprocess.run(here(container["command"] + container["args"]), capture_output=True, check=True)
        assert started.stdout == b"thrift\n"
        assert subprocess.run(probe, capture_output=True, check=False).returncode == 0
        assert (run / "tls.crt").stat().st_mode & 0o777 == 0o400


def test_an_image_which_has_no_git_names_its_commit(tmp_path: Path) -> None:
    assert Project(tmp_path, {"LAKEHOUSE_GIT_COMMIT": "abc"}).commit() == "abc"
    assert Project(tmp_path, {}).commit() is None
