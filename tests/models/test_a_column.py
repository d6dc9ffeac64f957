"""A column's way from a source field to a weekly file: how many files name it, and that these are enough."""

from pathlib import Path

import pytest

from python_dbt.compile import compiled_manifest
from python_dbt.pii import check, proof
from tests.support.small_project import copy_project

pytestmark = pytest.mark.slow

# Under models: each file, the line behind which a column `currency` is added, and what is added.
IN_YML = """      - name: currency
        data_type: string
        description: "{{ doc('currency') }}"
"""
IN_SOURCE = IN_YML.replace("      ", "          ", 1).replace("        d", "            d")
DESCRIBED = "        description: \"{{ doc('payment_method') }}\"\n"
ADDED = {
    "staging/payments/_payments__sources.yml": (f"    {DESCRIBED}", IN_SOURCE),
    "staging/payments/stg_payments__payments.sql": (
        "        {{ clean_text('payment_method') }} as payment_method,\n",
        "        {{ clean_text('currency') }} as currency,\n",
    ),
    "staging/payments/stg_payments__payments.yml": (
        "      - {name: payment_method, config: {meta: {pii: none}}}\n",
        "      - {name: currency, config: {meta: {pii: none}}}\n",
    ),
    "intermediate/deduplicated/int_payments_deduplicated.sql": ("        payment_method,\n", "        currency,\n"),
    "intermediate/masked/int_payments_masked.sql": ("        payment_method,\n", "        currency,\n"),
    "marts/fct_completed_orders.sql": (
        "        coalesce(payment_methods.payment_method, payments.spelling) as payment_method,\n",
        "        payments.currency,\n",
    ),
    "marts/fct_completed_orders.yml": (DESCRIBED, IN_YML),
    "exports/exp_weekly__completed_orders.sql": ("        payment_method,\n", "        currency,\n"),
    "exports/exp_weekly__completed_orders.yml": (DESCRIBED, IN_YML),
    "docs/columns.md": ("{% docs payment_method %}\n", "The currency of the amount.\n{% enddocs %}\n\n"),
}


def test_a_column_of_a_file_is_named_in_ten_files(tmp_path: Path) -> None:
    copy_project(tmp_path)
    for name, (line, added) in ADDED.items():
        file = tmp_path / "models" / name
        text = file.read_text()
        assert text.count(line) == 1, name
        block = f"{{% docs currency %}}\n{added}" if name.endswith(".md") else ""
        file.write_text(text.replace(line, block + line if block else line + added))
    lineage = proof.resolve(compiled_manifest(tmp_path))
    export = next(node for node in lineage.manifest.models if node.name == "exp_weekly__completed_orders")
    columns = [name for name, _ in lineage.relations[export.unique_id].columns]
    assert check.issues_of(lineage) == []
    assert "currency" in columns
    assert sorted(columns) == sorted(export.columns)
    assert len(ADDED) <= 10
