"""Recognises card, phone and national numbers among the numbers of one column, by their digits.

The numbers of one length are what enough of the distinct ones have the form of: three quarters for cards and national
numbers, nine tenths for phones, 97 % for those of 10 digits, of which most numbers have the form. By chance one in ten
has a check digit, so ids, clocks and counters stay below. A phone number has none: numbers that lie close together are
counters, and those with the check digit of articles (GTIN) are articles.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from operator import mul
from statistics import quantiles

Check = Callable[[str], object]

# Fewer numbers may have a check digit by chance; a card is one by itself.
FEWEST = 20
SHARE = 0.75
# Numbers that are closer together on average are counters; of few numbers more may be missing. Many phones of a country
# are close, too: among numbers that spread as widely, a counter has a tenth of all.
SPARSE, FEW, WIDE, DENSE = 1000, 100, 10**8, 10
# Country code and length (E.164), and North American numbers without their 1, but for years in front of a counter.
PHONE = re.compile(
    r"1?(?!202)[2-9]\d\d[2-9]\d{6}|7[3489]\d{9}|(27|3[1346]|4[0168]|5[16]|6[16]|84)\d{9}"
    r"|(3[09]|44|49|5[24578]|6[0-3]|8[12]|9[0-28])\d{10}|(4[39]|5[45]|62|86)\d{11}|(3[58]\d|42[01]|852|886|9[67]\d)\d{9}"
)
# Clocks begin with 1, and dates with 20.
CARD = re.compile("2[2-7]|[3-6]")
# The date of birth, of which some add 60 to the day.
SWEDEN = re.compile(r"(?:19|20)?(\d\d(?:0[1-9]|1[0-2])(?:[06][1-9]|[1278]\d|[39][01])\d{4})")


def is_luhn(digits: str) -> bool:
    """Return whether the last digit is right by Luhn; without any digits it is."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[-1::-2]))) % 10 == 0


def _weighted(divisor: int, *weights: int) -> Check:
    return lambda digits: sum(map(mul, weights, map(int, digits))) % divisor == 0


def _is_iso_7064(digits: str) -> bool:
    product = 10
    for digit in digits[:-1]:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (product + int(digits[-1])) % 10 == 1


def _is_swedish(digits: str) -> bool:
    # The check digit is of the number without its century.
    number = SWEDEN.fullmatch(digits)
    return number is not None and is_luhn(number[1])


POWERS = [10**power for power in range(12, -1, -1)]
NATIONAL: dict[int, Sequence[Check]] = {
    # Canada; the Netherlands.
    9: (is_luhn, _weighted(11, 9, 8, 7, 6, 5, 4, 3, 2, -1)),
    # Sweden, also with the century.
    10: (_is_swedish,),
    12: (_is_swedish,),
    # Germany, Poland, Turkey, Norway, Brazil, Belgium.
    11: (
        *(_is_iso_7064, _weighted(10, *[1, 3, 7, 9] * 2, 1, 3, 1), _weighted(10, *[1] * 10, -1)),
        *(_weighted(11, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1), _weighted(11, *range(10), -1)),
        _weighted(97, *POWERS[4:], 10, 1),
    ),
    # South Africa; France.
    13: (is_luhn,),
    15: (_weighted(97, *POWERS, 10, 1),),
}
IS_ARTICLE = _weighted(10, *[3, 1] * 7)


def kinds(numbers: Sequence[str], count: int) -> Iterator[tuple[str, Check]]:
    """Yield what numbers of one length are, each kind with the check of its form; of `count` some are a sample."""

    def share(check: Check, of: Sequence[str] = numbers) -> float:
        return sum(bool(check(number)) for number in of) / max(1, len(of))

    length = len(numbers[0])
    if length >= 13 and share(is_luhn, [number for number in numbers if CARD.match(number)]) >= SHARE:
        yield "card number", lambda number: CARD.match(number) and is_luhn(number)
    if len(numbers) >= FEWEST:
        for check in NATIONAL.get(length, ()):
            if share(check) >= SHARE:
                yield "national number", check
        # Without the tenth at each end: a number for "unknown" is far from all others.
        lowest, *_, highest = quantiles(map(int, numbers), n=10)
        is_counter = highest - lowest < max(DENSE * count, min(SPARSE * max(FEW, count), WIDE))
        is_phone = share(PHONE.fullmatch) >= (0.97 if length == 10 else 0.9)
        if is_phone and not is_counter and share(lambda number: IS_ARTICLE(number.zfill(14))) < SHARE:
            yield "phone number", PHONE.fullmatch
