"""What a scaffold writes passes the linters of the dbt project."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from python_common.config.environment import PROJECT_ROOT
from python_dbt.compile import compiled_manifest
from python_dbt.manifest import DbtManifest
from python_dbt.pii import check, proof
from python_dev.scaffold import files
from tests.support.scaffolded import TIME, new, written_topics
from tests.support.small_project import copy_project
from tests.support.topic_fixture import record

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy_project(tmp_path)
    return tmp_path


@pytest.mark.parametrize("seed", range(3))
def test_what_is_written_for_any_schema_passes_lint(project: Path, seed: int, spark: SparkSession) -> None:
    paths = written_topics(project, seed)
    manifest = assert_lint_passes(project, [str(path) for path in paths if path.suffix == ".sql"])
    assert len([source for source in manifest.landed if source.source_name.startswith("crm")]) == 3
    assert_spark_has_the_types(spark, manifest, {path.stem for path in paths})


def test_without_the_retail_models_a_topic_passes_lint(project: Path) -> None:
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

    returns = record("return", id="long", email="string", sku="string", returned_at=TIME)
    files.write(project, new(returns, "id", id="none", email="email", returned_at="none"))
    assert_lint_passes(project, ["models", "macros", "tests"])


def assert_lint_passes(project: Path, linted: list[str]) -> DbtManifest:
    """Run the parts of `make lint` that are about the dbt project, sqlfluff on some paths; return the manifest."""
    programs = Path(sys.executable)
    # A stack of other tests has dbt write elsewhere.
    env = {name: value for name, value in os.environ.items() if not name.startswith("DBT_")}
    for command in (
        ("sqlfluff", "lint", "--disable-progress-bar", *linted),
        ("yamllint", "--strict", "models"),
        ("dbt", "--quiet", "--warn-error", "parse", "--no-partial-parse", "--show-all-deprecations"),
        ("check-jsonschema", "--schemafile", "models/meta.schema.json", "target/manifest.json"),
        ("dbt-bouncer", "run", "--show-all-failures"),
    ):
        program = programs.with_name(command[0])
        done = subprocess.run(
            [program, *command[1:]], cwd=project, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, re.sub(r"\x1b\S*?m", "", done.stdout + done.stderr)
    manifest = compiled_manifest(project)
    assert check.issues_of(proof.resolve(manifest)) == []
    return manifest


def assert_spark_has_the_types(spark: SparkSession, manifest: DbtManifest, names: set[str]) -> None:
    """Have Spark analyse the SQL of models by name, over empty tables, and compare the columns with their yml."""
    views = {proof.PADS: "pads"}
    spark.sql("select cast(null as string) as value").createOrReplaceTempView("pads")
    for node in proof.in_order(manifest):
        columns_of_node = {name: column.data_type for name, column in node.columns.items() if column.data_type}
        if node.resource_type == "source" and node.source_name.startswith("crm"):
            sql = ", ".join(f"cast(null as {its_type}) as `{name}`" for name, its_type in columns_of_node.items())
            relation = spark.sql(f"select {sql}")
        elif node.resource_type == "model" and node.name in names:
            sql = node.compiled_code or ""
            for table, view in views.items():
                sql = re.sub(rf"(?<![\w.]){re.escape(table)}(?!\w)", view, sql)
            relation = spark.sql(sql)
            types = {field.name: field.dataType.simpleString() for field in relation.schema}
            is_described = node.schema in ("marts", "exports")
            assert columns_of_node == {name: types[name] for name in (types if is_described else columns_of_node)}
        else:
            continue
        views[proof.table_name(node)] = f"analysed_{len(views)}"
        relation.createOrReplaceTempView(views[proof.table_name(node)])
