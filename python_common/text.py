"""The one spelling of a text: white space and invisible characters go as the macro `trimmed` of macros/pii has it."""

from collections.abc import Iterable
from unicodedata import normalize

import pyarrow as pa
import pyarrow.compute as pc

# Regular expressions of RE2, for pyarrow and DuckDB.
BLANKS = r"[\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
INVISIBLE = r"[\x{ad}\x{61c}\x{180e}\x{200b}\x{200e}\x{200f}\x{202a}-\x{202e}\x{2060}-\x{2069}\x{feff}]"
# Joiners have a meaning inside of words.
ENDS = " \t\n\v\f\r\u200c\u200d"
PADDING = f"(?:{BLANKS}|{INVISIBLE}|[{ENDS}])*"


def trimmed(texts: pa.Array) -> pa.Array:
    """Return texts in their one spelling."""
    blanked = pc.replace_substring_regex(texts, BLANKS, " ")
    return pc.utf8_trim(pc.replace_substring_regex(blanked, INVISIBLE, ""), ENDS)


def spelling(text: str) -> str:
    """Return a text in its one spelling, composed."""
    return str(trimmed(pa.array([normalize("NFC", text)]))[0])


def spellings(texts: Iterable[str]) -> set[str]:
    """Return the spellings of texts that SQL can have, which does not compose characters: composed or not, as given."""
    forms = [form for text in texts for form in (normalize("NFC", text), normalize("NFD", text), text)]
    return {*trimmed(pa.array(forms, pa.large_string())).to_pylist()} - {""}
