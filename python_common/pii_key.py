"""The masking key file: one 0600 line `<version>:<hex inner pad><hex outer pad>:source`, as Spark SQL can use it.

HMAC-SHA256 needs the key only as its two 64-byte pads (RFC 2104). `:source` means that the domain of a pseudonym is
`<source>.<class>` where a system numbers its persons; in a line of a release before 0.6, without it, it is the class.
Every version has a copy `<file>.<version>`, which never changes. The SQL side is macros/pii.
"""

import hashlib
import re
import secrets
from pathlib import Path

from python_common import private_files
from python_common.errors import UserError

BLOCK_BYTES = 64
LINE = re.compile(r"(v\d+):([0-9a-f]{256})(:source)?\n?")


def create(path: Path) -> None:
    """Write a new random 256-bit key to a new file; a UserError if the file, or a copy of a lost one, exists."""
    copies = sorted(path.parent.glob(f"{path.name}.v*"))
    if path.exists() or copies:
        raise UserError(
            f"There is a masking key already: {', '.join(map(str, [path, *copies] if path.exists() else copies))}",
            f"Restore {path} from its newest copy; `lakehouse pii rotate` makes a new key",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_new_version(path, "v1")


def rotate(path: Path) -> str:
    """Replace the key in the file by one of the next version, and return the version.

    The old key stays in its copy. After a kill the file holds the old key or the new one. Raises as `check`.
    """
    current = check(path)
    copy = path.with_name(f"{path.name}.{current}")
    if not copy.exists():
        private_files.write(copy, path.read_text(), replaces=False)
    versions = [int(other.name.rpartition(".v")[2]) for other in path.parent.glob(f"{path.name}.v*")]
    version = f"v{max([int(current[1:]), *versions]) + 1}"
    _write_new_version(path, version)
    return version


def lines(path: Path) -> dict[str, str]:
    """Return the line of each version of the key: of its file, and of its copies; raises as `check`."""
    return {check(file): file.read_text().strip() for file in (path, *path.parent.glob(f"{path.name}.v*"))}


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


def pseudonyms(path: Path, domain: str, value: str) -> dict[str, str]:
    """Return the pseudonym of a value by version of the key, as macros/pii/pseudonym.sql makes it; raises as `check`.

    `domain` is a class, or `<source>.<class>`, of which older versions know the class alone.
    """
    by_version = {}
    for version, line in lines(path).items():
        _, pads, *by_source = line.split(":")
        message = f"{domain if by_source else domain.rpartition('.')[2]}|{value}".encode()
        inner, outer = bytes.fromhex(pads[: 2 * BLOCK_BYTES]), bytes.fromhex(pads[2 * BLOCK_BYTES :])
        by_version[version] = hashlib.sha256(outer + hashlib.sha256(inner + message).digest()).hexdigest()
    return by_version


def _write_new_version(path: Path, version: str) -> None:
    key = secrets.token_bytes(32).ljust(BLOCK_BYTES, b"\0")
    inner, outer = (bytes(byte ^ pad for byte in key) for pad in (0x36, 0x5C))
    line = f"{version}:{inner.hex()}{outer.hex()}:source\n"
    # The copy first: a key that something was masked with must never be lost.
    private_files.write(path.with_name(f"{path.name}.{version}"), line, replaces=False)
    private_files.write(path, line)
