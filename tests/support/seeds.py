"""Seeds of random tests: `make test` has one of each, `make chaos` a random one."""

import os
from typing import Any

import pytest

SEED = int(os.environ["CHAOS_SEED"])


def seeds(count: int) -> list[Any]:
    """Return the values of a parameter: the first seed, and others that are long."""
    return [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, count))]
