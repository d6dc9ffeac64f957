"""The masking key file: its pads give Python's HMAC, and a bad file is refused by name."""

import hashlib
import hmac
from pathlib import Path

import pytest

from python_common import pii_key
from python_common.errors import UserError
from tests.support.kills import killed_at


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a new key."""
    pii_key.create(tmp_path / "pii.key")
    return tmp_path / "pii.key"


def test_the_pads_compute_the_same_hmac_as_python(path: Path) -> None:
    version, pads, domains = path.read_text().strip().split(":")
    assert domains == "source"
    inner, outer = bytes.fromhex(pads[:128]), bytes.fromhex(pads[128:])
    key = bytes(byte ^ 0x36 for byte in inner)
    by_pads = hashlib.sha256(outer + hashlib.sha256(inner + b"user|1").digest()).hexdigest()
    assert by_pads == hmac.new(key, b"user|1", "sha256").hexdigest()
    assert version == pii_key.check(path) == "v1"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_key_is_never_replaced(path: Path) -> None:
    with pytest.raises(UserError, match="There is a masking key already"):
        pii_key.create(path)
    path.unlink()
    with pytest.raises(UserError, match=r"Restore .*pii\.key from its newest copy"):
        pii_key.create(path)


def test_a_rotation_makes_the_next_version_and_keeps_the_old_key(path: Path, tmp_path: Path) -> None:
    first = path.read_text()
    # It leaves the copy of a key that is never used.
    killed_at("key rotated", "between copy and key", pii_key.rotate, path)
    assert path.read_text() == first
    assert pii_key.rotate(path) == pii_key.check(path) == "v3"
    assert (tmp_path / "pii.key.v1").read_text() == first
    assert (tmp_path / "pii.key.v3").read_text() == path.read_text()
    assert path.read_text()[3:] != first[3:]
    made = [path, tmp_path / "pii.key.v1", tmp_path / "pii.key.v3"]
    assert {file.stat().st_mode & 0o777 for file in made} == {0o600}
    assert sorted(tmp_path.glob("pii.key*")) == sorted([*made, tmp_path / "pii.key.v2"])


def test_a_key_without_a_copy_counts_and_a_rotation_keeps_it(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "pii.key.v1"
    first = path.read_text()
    copy.unlink()
    assert pii_key.pseudonyms(path, "shop.customer", "42").keys() == {"v1"}
    pii_key.rotate(path)
    assert copy.read_text() == first
    assert copy.stat().st_mode & 0o777 == 0o600
    assert pii_key.pseudonyms(path, "shop.customer", "42").keys() == {"v1", "v2"}


@pytest.mark.parametrize("damage", ["missing", "two lines", "open to others"])
def test_a_bad_key_file_is_named_and_its_content_is_not(path: Path, damage: str) -> None:
    secret = path.read_text()
    if damage == "missing":
        path.unlink()
    elif damage == "two lines":
        path.write_text(secret * 2)
    else:
        path.chmod(0o644)
    with pytest.raises(UserError) as refusal:
        pii_key.check(path)
    assert str(path) in str(refusal.value)
    assert secret[10:40] not in str(refusal.value)


def test_pseudonyms_are_those_of_every_version_of_the_key(path: Path, tmp_path: Path) -> None:
    # As a release before 0.6 wrote it.
    for file in (path, tmp_path / "pii.key.v1"):
        file.write_text(file.read_text().replace(":source", ""))
    pii_key.rotate(path)
    expected = {}
    for copy, domain in (("v1", "customer"), ("v2", "shop.customer")):
        pads = (tmp_path / f"pii.key.{copy}").read_text().strip().split(":")[1]
        key = bytes(byte ^ 0x36 for byte in bytes.fromhex(pads[:128]))
        expected[copy] = hmac.new(key, f"{domain}|42".encode(), "sha256").hexdigest()
    assert pii_key.pseudonyms(path, "shop.customer", "42") == expected
    assert pii_key.pseudonyms(path, "payments.customer", "42")["v2"] != expected["v2"]
