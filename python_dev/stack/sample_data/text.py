"""Words: synthetic people, goods, and the text that breaks careless exports."""

from random import Random

HOSTILE_FORMS = (
    'the "{}"',
    '"{}"',
    "{}, {}",
    "{};{}|{}",
    "{}\n{}",
    "{}\r\n{}",
    "={}",
    "=SUM(1,2)&{}",
    "+{}",
    "-{}",
    "@{}",
    "\uff1d{}",
    "007 {}",
    "000123{}",
    "\t{}",
    "{}\t",
    "  {}  ",
    "{} \N{SLICE OF PIZZA}",
    "{} \N{MAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER}",
    "{} \u00fcn\u00efc\u00f6d\u00e9",
    "{}\\",
    "'{}'",
    "{}\\n\\N",
)
HOSTILE_WORDS = ("", " ", "0042", "-1", "=1+1", "+49", "@home", "NULL", "null", "1e5", '"', ",", "2026-01-01", "\\N")

_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "qu", "r", "s", "t", "v", "x", "z")
_VOWELS = ("a", "e", "i", "o", "u")
_CAPITALS_AND_DIGITS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


def word(rng: Random, syllables: int = 4) -> str:
    """Return a made-up capitalised word, at least two letters per syllable."""
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(syllables)).capitalize()


def token(rng: Random, length: int) -> str:
    """Return random capitals and digits."""
    return "".join(rng.choices(_CAPITALS_AND_DIGITS, k=length))


def hostile(rng: Random, base: str, share: float) -> str:
    """Return the base in a random form that needs escaping, or in `1 - share` of the cases the base itself."""
    if rng.random() >= share:
        return base
    return hostile_form(rng.randrange(len(HOSTILE_FORMS)), base)


def hostile_form(number: int, base: str) -> str:
    """Return the base in one form that needs escaping; the numbers go round."""
    form = HOSTILE_FORMS[number % len(HOSTILE_FORMS)]
    return form.format(*[base] * form.count("{}"))
