"""One spelling: erasure, which searches, and the models' macro, which masks, agree on each text."""

import sys
import unicodedata
from random import Random

import pyarrow as pa
from pyspark.sql import SparkSession

from python_common.text import spelling, spellings, trimmed
from python_dbt.pii import masks

EVERY = [chr(code) for code in range(1, sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
WHITE = [char for char in EVERY if char.isspace() or unicodedata.category(char) in ("Zs", "Zl", "Zp")]
# What renders nothing: formats of text, without those that join, shape or number letters.
INVISIBLE = "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a\u202e\u2060\u2066\u2069\ufeff"


def texts() -> list[str]:
    """Return characters around and inside of a word, and random words of what is trimmed and what is not.

    Beyond the basic plane, where all that is trimmed is a format, some letters stand for all.
    """
    random = Random(7)
    plane, beyond = EVERY[:0xF7FF], EVERY[0xF7FF:]
    formats = [char for char in beyond if unicodedata.category(char) in ("Cc", "Cf", "Zs", "Zl", "Zp")]
    letters = [*WHITE, *INVISIBLE, *"aé\u0301\u200c\u200d\u3164\U0001f355\u738b"]
    generated = ["".join(random.choices(letters, k=random.randrange(9))) for _ in range(20_000)]
    chosen = [*plane, *formats, *random.sample(beyond, 5_000)]
    return [f"{char}a{char}{char}b{char}" for char in chosen] + WHITE + generated


def test_spark_and_python_trim_every_text_alike(spark: SparkSession) -> None:
    every = texts()
    spark.createDataFrame(pa.table({"at": range(len(every)), "text": every})).createOrReplaceTempView("spelled")
    rows = spark.sql(f"select {masks._rendered('trimmed', 'text')} as text from spelled order by at").toArrow()
    pairs = zip(every, rows["text"].to_pylist(), trimmed(pa.array(every)).to_pylist(), strict=True)
    assert [ascii(text) for text, by_spark, by_python in pairs if by_spark != by_python] == []


def test_no_white_space_of_unicode_is_left_around_a_text() -> None:
    assert [ascii(char) for char in WHITE if spelling(f"{char}a b{char}{char}") != "a b"] == []
    assert [ascii(char) for char in WHITE if spelling(char) != ""] == []
    assert [ascii(char) for char in INVISIBLE if spelling(f"{char}a{char} b{char}") != "a b"] == []
    assert {spelling(f"a{char}b") for char in WHITE if not char.isascii()} == {"a b"}


def test_joiners_and_white_space_of_ascii_stay_inside_of_a_text() -> None:
    for text in ("a\u200cb", "\U0001f468\u200d\U0001f4bb", "a  b", "a\tb", "a\r\nb"):
        assert spelling(f"\u200d {text}\u200c\n") == text


def test_both_normal_forms_of_a_text_are_searched() -> None:
    composed, decomposed = "Zoe\u0301\u00f6", "Zo\u00e9o\u0308"
    assert spellings([composed + "\u00a0", " \u200b"]) == {
        composed, "Zo\u00e9\u00f6", unicodedata.normalize("NFD", decomposed)
    }  # fmt: skip
    assert spelling(composed) == spelling(decomposed)
