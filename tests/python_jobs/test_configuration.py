"""Variables: each is in the docs, each that is named in the code is declared, and a misspelled one is refused."""

import re
import subprocess
from itertools import chain

import pytest

from python_common.config.environment import PROJECT_ROOT
from python_common.errors import UserError
from python_jobs.commands.configuration import PAGE, REPLACED, main, page, refuse_misspelled, variables
from tests.support import in_process
from tests.support.commands import run_lakehouse
from tests.support.variables import NOT_FOR_PEOPLE


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("LAKEHOUSE_SMTP_USERNAME", "LAKEHOUSE_SMTP_USER"),
        ("LAKEHOUSE_Thrift_Tls", "LAKEHOUSE_THRIFT_TLS"),
    ],
)
def test_a_misspelled_variable_is_refused_with_the_right_name(wrong: str, right: str) -> None:
    with pytest.raises(UserError) as caught:
        refuse_misspelled({right: "/exports", wrong: "a secret"})
    assert str(caught.value) == f"{wrong} is an unknown variable. Rename it to {right}, or unset it."


def test_what_others_set_is_left_alone() -> None:
    # What Kubernetes sets for services named lakehouse and lakehouse-thrift, another program of Kafka's, and ours.
    endings = ("SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_1_TCP_ADDR", "THRIFT_SERVICE_HOST", "THRIFT_PORT_1_TCP")
    others = [*(f"LAKEHOUSE_{ending}" for ending in endings), "KAFKA_SSL_KEYSTORE_LOCATION"]
    names = [*others, *variables(), *NOT_FOR_PEOPLE]
    refuse_misspelled(dict.fromkeys(names, "x"))


def test_a_variable_that_withheld_files_is_not_ignored() -> None:
    for name, remedy in REPLACED.items():
        with pytest.raises(UserError) as refused:
            refuse_misspelled({name: "5"})
        assert str(refused.value) == f"{name} has no effect any more. {remedy}."


def test_every_command_but_help_refuses_a_misspelled_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_EXPORT_ROT", "/exports")
    refused = run_lakehouse("check", "java")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: LAKEHOUSE_EXPORT_ROT is an unknown variable.")
    monkeypatch.setattr("sys.argv", ["lakehouse", "check", "--help"])
    assert in_process.lakehouse("check", "--help").returncode == 0


def test_no_default_of_dbt_hides_an_empty_variable() -> None:
    files = (PROJECT_ROOT / name for name in ("dbt_project.yml", "profiles.yml"))
    defaults = [re.findall(r"env_var\('\w+', '(.*?)'\)", file.read_text()) for file in files]
    assert {*chain(*defaults)} == {""}


def test_an_outdated_page_of_variables_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    main("check")
    assert page(PAGE.read_text().replace("`LAKEHOUSE_HOME`", "`LAKEHOUSE_HOUSE`", 1)) == PAGE.read_text()
    monkeypatch.setattr("python_jobs.commands.configuration.table", lambda: "| one more |")
    with pytest.raises(UserError, match="is out of date"):
        main("check")


def test_every_variable_that_the_code_names_is_declared() -> None:
    kinds = ("*.py", "*.sql", "profiles.yml", "Makefile")
    listed = subprocess.run(["git", "ls-files", *kinds], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.split() if not name.startswith("tests/")]
    text = "\n".join((PROJECT_ROOT / name).read_text() for name in files)
    named = set(re.findall(r"\b(?:LAKEHOUSE|SCHEMA_REGISTRY)_[A-Z_]*[A-Z]\b(?!_)", text))
    assert named - set(variables()) - NOT_FOR_PEOPLE - set(REPLACED) == set()
