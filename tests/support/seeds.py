"""Seeds of random tests: the fixture `random_seed` is 0, and in `make test-slow` ten more for each round."""

import os
import random

# Part of test names, on which all workers must agree.
SEED = int(os.environ.setdefault("TEST_SEED", str(random.randrange(1_000_000))))
ROUNDS = int(os.environ.get("TEST_ROUNDS", "0"))
