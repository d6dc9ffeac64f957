"""A stretch of one partition."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OffsetRange:
    """Offsets `start` (included) to `until` (excluded) of one partition."""

    partition: int
    start: int
    until: int
