"""Columns of persons' numbers are recognised, and those of ids, clocks, amounts and articles are not."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from python_export.csv.numbers import NATIONAL, kinds

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
Generator = Callable[[Random, int], list[int]]


def luhn(number: int) -> int:
    """Append the digit by which a number is right, of ten that are tried."""
    return next(
        candidate
        for candidate in range(number * 10, number * 10 + 10)
        if sum(
            int(digit) if place % 2 == 0 else (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)[int(digit)]
            for place, digit in enumerate(reversed(str(candidate)))
        )
        % 10
        == 0
    )


def gtin(number: int) -> int:
    total = sum(int(digit) * (3 if place % 2 == 0 else 1) for place, digit in enumerate(reversed(str(number))))
    return number * 10 + -total % 10


def pesel(number: int) -> int:
    total = sum(int(digit) * weight for digit, weight in zip(str(number), (1, 3, 7, 9) * 3, strict=False))
    return number * 10 + -total % 10


def personnummer(chance: Random) -> str:
    born = datetime(1940, 1, 1, tzinfo=UTC) + timedelta(days=chance.randrange(20_000))
    return f"{luhn(int(f'{born:%y%m%d}{chance.randrange(1000):03}')):010}"


def each(make: Callable[[Random], int]) -> Generator:
    return lambda chance, count: [make(chance) for _ in range(count)]


def counter(length: int, step: int) -> Generator:
    def count_up(chance: Random, count: int) -> list[int]:
        number = chance.randrange(10 ** (length - 1), 9 * 10 ** (length - 1))
        return [number := number + chance.randint(1, step) for _ in range(count)]

    return count_up


def multiples(length: int, of: int) -> Generator:
    def count_up(chance: Random, count: int) -> list[int]:
        start = chance.randrange(10 ** (length - 1), 9 * 10 ** (length - 1)) // of
        return [(start + number) * of for number in range(count)]

    return count_up


def clock(per_second: int) -> Generator:
    start = int(MONDAY.timestamp())
    return each(lambda chance: chance.randrange(start * per_second, (start + 604_800) * per_second))


def labelled(form: str, digits: int) -> Generator:
    """A label of the day or second, and a counter."""
    return lambda chance, count: [
        int(f"{MONDAY + timedelta(seconds=chance.randrange(604_800)):{form}}{number % 10**digits:0{digits}d}")
        for number in range(count)
    ]


def with_unknown(numbers: Generator) -> Generator:
    """Numbers of 10 digits of which one says that it is not known."""
    return lambda chance, count: [9_999_999_999, *numbers(chance, count)]


PERSONS: dict[str, tuple[str, Generator]] = {
    "card of 16": ("card number", each(lambda chance: luhn(chance.randrange(4 * 10**14, 6 * 10**14)))),
    "card of 15": ("card number", each(lambda chance: luhn(37 * 10**12 + chance.randrange(10**12)))),
    "Luhn of 9": ("national number", each(lambda chance: luhn(chance.randrange(10**7, 10**8)))),
    "Sweden": ("national number", each(lambda chance: int(personnummer(chance)))),
    "Sweden with its century": ("national number", each(lambda chance: int(f"19{personnummer(chance)}"))),
    "PESEL": ("national number", each(lambda chance: pesel(chance.randrange(10**9, 10**10)))),
    "NIR": (
        "national number",
        each(lambda chance: (number := chance.randrange(10**12, 3 * 10**12)) * 100 + 97 - number % 97),
    ),
    "North America": (
        "phone number",
        each(lambda chance: 10**10 + chance.randrange(201, 990) * 10**7 + chance.randrange(200, 1000) * 10**4 + 4477),
    ),
    "Germany": ("phone number", each(lambda chance: 491500000000 + chance.randrange(3 * 10**9))),
    "Britain": ("phone number", each(lambda chance: 447000000000 + chance.randrange(10**9))),
}
OTHERS: dict[str, Generator] = {
    **{f"counter of {length}, step {step}": counter(length, step) for length in range(9, 19) for step in (1, 100)},
    **{f"multiples of {of}, {length} digits": multiples(length, of) for length in (10, 13, 16) for of in (10, 1000)},
    **{f"random of {length}": each(lambda chance, low=10 ** (length - 1): chance.randrange(low, 10 * low))
       for length in range(9, 20)},
    **{f"clock, {per_second} per second": clock(per_second) for per_second in (1, 10**3, 10**6, 10**9)},
    "day and counter": labelled("%Y%m%d", 4),
    "second and counter": labelled("%Y%m%d%H%M%S", 2),
    "year and customer": each(lambda chance: chance.randint(2022, 2026) * 10**6 + chance.randrange(10**5)),
    "month, day and counter": labelled("26%m%d", 4),
    "counter and unknown": with_unknown(counter(10, 3)),
    "Luhn of 10": each(lambda chance: luhn(chance.randrange(10**8, 10**9))),
    "snowflake": each(lambda chance: 1 << 60 | chance.randrange(1 << 59)),
    "amount in cents": each(lambda chance: int(chance.lognormvariate(9, 3))),
    "EAN-13": each(lambda chance: gtin(400_000_000_000 + chance.randrange(40 * 10**9))),
    "UPC": each(lambda chance: gtin(chance.randrange(3 * 10**10, 9 * 10**10))),
}  # fmt: skip


def recognised(numbers: list[int]) -> set[str]:
    """Return what the numbers of any length are."""
    by_length: dict[int, list[str]] = {}
    for number in map(str, {*numbers}):
        if 9 <= len(number) <= 19:
            by_length.setdefault(len(number), []).append(number)
    return {kind for of_length in by_length.values() for kind, _ in kinds(of_length, len(of_length))}


@pytest.mark.parametrize("name", PERSONS)
def test_a_column_of_persons_numbers_is_recognised(name: str, random_seed: int) -> None:
    kind, numbers = PERSONS[name]
    chance = Random(random_seed)
    for count in (25, 200, 1000):
        assert kind in recognised(numbers(chance, count)), count


@pytest.mark.parametrize("name", OTHERS)
def test_a_column_of_ids_clocks_or_amounts_is_not(name: str, random_seed: int) -> None:
    chance = Random(random_seed)
    for count in (25, 200, 1000):
        assert recognised(OTHERS[name](chance, count)) == set(), count


@pytest.mark.parametrize("count", [2_000, 200_000])
def test_many_phones_of_one_country_are_no_counter(count: int) -> None:
    chance = Random(7)
    for low, high in ((33_600_000_000, 33_800_000_000), (447_400_000_000, 448_000_000_000)):
        sample = [str(chance.randrange(low, high)) for _ in range(1000)]
        assert [kind for kind, _ in kinds(sample, count)] == ["phone number"]


def test_one_date_and_time_is_no_card() -> None:
    chance = Random(7)
    for _ in range(1000):
        assert not [*kinds([f"{MONDAY + timedelta(seconds=chance.randrange(604_800)):%Y%m%d%H%M%S}"], 1)]


@pytest.mark.parametrize(
    "number",
    [
        *("123456782", "111222333", "8803200016", "44051401359", "17291716060", "10000000146", "52998224725"),
        *("11144477735", "86095742719", "47036892816", "85073003328", "7503305044089", "295109912611193"),
        *("15108695088", "198112289874"),
    ],
)
def test_a_published_example_of_a_national_number_has_a_form(number: str) -> None:
    assert any(check(number) for check in NATIONAL[len(number)])
    for other in range(10):
        if (wrong := f"{number[:-1]}{other}") != number:
            assert sum(bool(check(wrong)) for check in NATIONAL[len(number)]) < len(NATIONAL[len(number)])
