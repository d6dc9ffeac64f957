"""Seeds of random tests: `make test` has one of each, `make test-slow` a random one."""

import os
from typing import Any

import pytest

SEED = int(os.environ["TEST_SEED"])


def seeds(count: int) -> list[Any]:
    """Return the values of a parameter: the first seed, and others that are slow."""
    return [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, count))]
