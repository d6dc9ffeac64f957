"""Reviews where they are used: the steps of action.yml and producer.yml, and the hooks, run in a checkout."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from python_common.catalog.catalog import load_catalog
from python_common.config.environment import PROJECT_ROOT
from python_common.config.settings import Settings
from tests.support.small_project import copy_checkout, git
from tests.support.topic_fixture import record

pytestmark = pytest.mark.slow

ACTION = yaml.safe_load((PROJECT_ROOT / "action.yml").read_text())
TIMESTAMP = {"type": "long", "logicalType": "timestamp-millis"}
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((PROJECT_ROOT / ".pre-commit-hooks.yaml").read_text())}
# What GitHub puts in place of an expression, in a pull request that asks for a review of code alone.
EXPRESSIONS = {
    "${{ inputs.target }}": "review",
    "${{ github.event.pull_request.body }}": "A title\n\nreview-accept: sales rows<=1 it's `right`",
    "${{ github.event.pull_request.number }}": "7",
    "${{ github.token }}": "token",
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project as its main branch has it, with the environment that `make setup` makes."""
    directory = tmp_path / "checkout"
    copy_checkout(directory)
    # An environment that looked older would be made again, for this checkout.
    for file in ("pyproject.toml", "uv.lock"):
        os.utime(directory / file, (0, 0))
    # It has this project's packages; the checkout's come first.
    monkeypatch.setenv("PYTHONPATH", str(directory))
    git(directory, "init", "--quiet")
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "First")
    git(directory, "update-ref", "refs/remotes/origin/main", "HEAD")
    for name in (".venv", ".tools"):
        if (PROJECT_ROOT / name).exists():
            (directory / name).symlink_to(PROJECT_ROOT / name)
    return directory


def plant(checkout: Path, file: str, old: str, new: str) -> None:
    text = (checkout / file).read_text()
    assert old in text
    (checkout / file).write_text(text.replace(old, new))


def run(directory: Path, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a runner does."""
    env = {**os.environ, "LAKEHOUSE_HOME": str(directory / ".lakehouse"), **variables}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
    return subprocess.run(shell, check=False, cwd=directory, env=env, capture_output=True, text=True)


def test_the_action_reviews_and_posts_what_it_found(checkout: Path, tmp_path: Path) -> None:
    """`gh` would post to GitHub: here a script notes what it is given."""
    posted = tmp_path / "posted"
    posted.mkdir()
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(f'#!/bin/sh\necho "$GH_TOKEN $@" > {posted}/arguments\ncp "$5" {posted}/body\n')
    gh.chmod(0o755)
    plant(checkout, "models/exports/exp_weekly__product_demand.sql", "null, quantity)", "null, quantity + 1)")
    steps = [step for step in ACTION["runs"]["steps"] if "run" in step]
    assert [step["name"] for step in steps] == ["Review", "Comment"]
    for step in steps:
        variables = {name: EXPRESSIONS[value] for name, value in step["env"].items()}
        runner = {"RUNNER_TEMP": str(tmp_path), "GITHUB_BASE_REF": "main", "PATH": f"{gh.parent}:{os.environ['PATH']}"}
        ended = run(checkout, step["run"], **runner, **variables)
        assert ended.returncode == 0, ended.stderr[-2000:]
    assert (tmp_path / "text").read_text() == f"{EXPRESSIONS['${{ github.event.pull_request.body }}']}\n"
    assert (posted / "arguments").read_text().startswith("token pr comment 7 --body-file target/review/review.md")
    body = (posted / "body").read_text()
    assert "exp_weekly__product_demand" in body
    assert "# Review: look" in body


def test_hooks_stop_a_column_without_its_mask(checkout: Path) -> None:
    masked = "{{ masked('stg_shop__customers', 'email', as='pseudonym') }}"
    plant(checkout, "models/intermediate/masked/int_customers_masked.sql", masked, "email")
    outcomes = {name: run(checkout, " ".join([hook["entry"], *hook.get("args", [])])) for name, hook in HOOKS.items()}
    assert {name: ended.returncode for name, ended in outcomes.items()} == {"review": 2, "pii": 1}
    assert "email" in outcomes["pii"].stderr
    assert "review: breaking" in outcomes["review"].stdout


def test_a_producer_learns_which_weekly_file_lacks_values(
    checkout: Path, offline_settings: Settings, tmp_path: Path
) -> None:
    load_catalog(offline_settings, create=True)
    steps = yaml.safe_load((PROJECT_ROOT / "deploy" / "review" / "producer.yml").read_text())["jobs"]["plan"]["steps"]
    checked_out, plan = steps[1]["with"], steps[2]
    assert (tmp_path / checked_out["path"]).name == "lakehouse"
    (tmp_path / "lakehouse").symlink_to(checkout)
    schema = tmp_path / plan["env"]["SCHEMA"]
    schema.parent.mkdir()
    lake = {
        "KAFKA_BOOTSTRAP_SERVERS": offline_settings.kafka_bootstrap_servers,
        "SCHEMA_REGISTRY_URL": offline_settings.schema_registry_url,
        "LAKEHOUSE_CATALOG_URI": offline_settings.catalog_uri,
        "LAKEHOUSE_WAREHOUSE": offline_settings.warehouse,
        "LAKEHOUSE_HOME": str(tmp_path),
    }
    assert plan["env"].keys() == {*lake, "TOPIC", "SCHEMA"}
    of_file = {name: plan["env"][name] for name in ("TOPIC", "SCHEMA")}
    fields = {"orderid": "int", "customerid": "int", "orderdate": TIMESTAMP, "status": "string", "channel": "string"}
    for dropped, code in ((set(), 0), ({"channel"}, 1)):
        left = {name: kind for name, kind in {**fields, "__deleted": "string"}.items() if name not in dropped}
        schema.write_text(json.dumps(record("Order", **left)))
        ended = run(tmp_path, plan["run"], **lake, **of_file)
        assert ended.returncode == code, ended.stderr[-2000:]
        assert ("exp_weekly__order_lines.channel" in ended.stdout.partition("  omits channel, downstream:")[2]) == bool(
            code
        )
