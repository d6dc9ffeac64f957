"""What a scaffold writes passes the linters of the dbt project."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_dbt.compile import compiled_manifest
from python_dbt.pii import check, masks, proof
from python_dev.scaffold import columns, files
from tests.support.scaffolded import TIME, new, topic_of
from tests.support.schemas import NAMES, random_record
from tests.support.seeds import SEED
from tests.support.small_project import copy_project
from tests.support.topic_fixture import record

pytestmark = pytest.mark.slow


def test_without_the_retail_models_a_topic_passes_lint(tmp_path: Path) -> None:
    """One topic as on the page, with long labels, and one of any schema, with classes that are offered."""
    project = tmp_path
    copy_project(project)
    page = (PROJECT_ROOT / "docs" / "your-own-topics.md").read_text().partition("## Without the retail models")[2]
    commands = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    subprocess.run(["bash", "-eu", "-c", commands], cwd=project, check=True)
    # It compiles, so nothing that is left reads what is gone.
    assert {node.name for node in compiled_manifest(project).models} == {
        "dim_dates",
        "ops_commits",
        "ops_export_weeks",
        "ops_ingest_batches",
        "ops_reconciliation",
        "ops_table_health",
        "ops_topic_weeks",
        "ops_weekly_figures",
    }

    labels = {"type": "enum", "name": "Label", "symbols": [f"{'LONG' * 5}_{number}" for number in range(20)]}
    returns = record("return", id="long", email="string", label=labels, returned_at=TIME)
    files.write(project, new(returns, "id", id="none", email="email", label="none", returned_at="none"))
    rng, described = random.Random(SEED), files.described(project)
    topic = topic_of(random_record(rng, len(NAMES)), "Other.topic", key_format="avro", key_type="bigint")
    classes = {
        column.name: rng.choice([*columns.offered(column.leaf.type), *[masks.AS_IS] * 6])
        for column in columns.columns(topic, {}, described)
    }
    files.write(project, files.new_topic(topic, "crm1", "views", columns.columns(topic, classes, described)))
    # The parts of `make lint` that are about the dbt project. A stack of other tests has dbt write elsewhere.
    env = {name: value for name, value in os.environ.items() if not name.startswith("DBT_")}
    for command in (
        ("sqlfluff", "lint", "--disable-progress-bar", "models", "macros", "tests"),
        ("yamllint", "--strict", "models"),
        ("dbt", "--quiet", "--warn-error", "parse", "--no-partial-parse", "--show-all-deprecations"),
        ("check-jsonschema", "--schemafile", "models/meta.schema.json", "target/manifest.json"),
        ("dbt-bouncer", "run", "--show-all-failures"),
    ):
        program = Path(sys.executable).with_name(command[0])
        done = subprocess.run(
            [program, *command[1:]], cwd=project, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, re.sub(r"\x1b\S*?m", "", done.stdout + done.stderr)
    assert check.issues_of(proof.resolve(compiled_manifest(project))) == []
