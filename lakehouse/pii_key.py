"""The masking key file: one 0600 line `<version>:<hex inner pad><hex outer pad>`, as Spark SQL can use it.

HMAC-SHA256 needs the key only as its two 64-byte pads (RFC 2104), so the file holds those and nothing else. The SQL
side is macros/pii.
"""

import re
import secrets
from pathlib import Path

from lakehouse.errors import UserError

BLOCK_BYTES = 64
LINE = re.compile(r"(v\d+):([0-9a-f]{256})\n?")


def create(path: Path, version: str = "v1") -> None:
    """Write a new random 256-bit key to a file that must not exist yet."""
    key = secrets.token_bytes(32).ljust(BLOCK_BYTES, b"\0")
    inner = bytes(byte ^ 0x36 for byte in key)
    outer = bytes(byte ^ 0x5C for byte in key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(f"{version}:{inner.hex()}{outer.hex()}\n")


def check(path: Path) -> str:
    """Return the version of the key in a file.

    Raises:
        UserError: the file is missing, readable by others, or not one line in the expected form.
    """
    remedy = "Name the key file in LAKEHOUSE_PII_KEY_FILE; `lakehouse stack up` creates one for a local stack"
    if not path.is_file():
        raise UserError(f"The masking key file {path} is missing", remedy)
    if path.stat().st_mode & 0o077:
        raise UserError(f"The masking key file {path} is open to others", f"Run `chmod 600 {path}`")
    match = LINE.fullmatch(path.read_text(errors="replace"))
    if not match:
        raise UserError(f"The masking key file {path} does not hold exactly one key", remedy)
    return match[1]
