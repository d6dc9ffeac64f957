"""The sample data: the same for ever, and so are the results that plain Python expects of it."""

import hashlib
import json

from python_common.weeks import IsoWeek
from python_dev.stack.sample_data import produced_log
from python_dev.stack.sample_data.expected.summary import summarise
from python_dev.stack.sample_data.plan import Plan

ARGUMENTS = {"orders": 300, "seed": 7, "weeks": 3, "last_week": IsoWeek(2026, 30)}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_log_and_its_results_stay_the_same():
    """A deliberate change of the sample data, or of a rule, changes these. Each process hashes with another seed."""
    log = produced_log(**ARGUMENTS, wave=2)
    expected = summarise(log, Plan(**ARGUMENTS), 2)
    assert digest(repr(log)) == "f71c202218d44cd59b12cc1ec24cf1e123997a909e535c6a967a2835b14cf003"
    as_text = json.dumps(expected, sort_keys=True)
    assert digest(as_text) == "0430288a66dfbf7cae0aeb5de12e4cb244fb0bc1607642b9a78021648c40f17f"
