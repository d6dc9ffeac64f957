"""What a check of personal data finds, and where raw values may stand."""

from dataclasses import dataclass

STAGING = "staging"
RESTRICTED = {STAGING, "deduplicated"}


@dataclass(frozen=True)
class Problem:
    """What is wrong, and what to do about it."""

    message: str
    remedy: str
