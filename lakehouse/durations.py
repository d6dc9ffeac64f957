"""Durations as people write them."""

import re

from lakehouse.errors import UserError


def seconds(text: str) -> float:
    """Return the seconds of a duration such as `500ms`, `30s`, `5m`, `1h` or `7d`; a UserError for any other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text.strip())
    if not match:
        raise UserError(f"'{text}' is not a duration", "Write it like 500ms, 30s, 5m, 1h or 7d")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2] or "s"]
