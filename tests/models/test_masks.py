"""Each mask over VALUES against plain Python, and what does not compile. Values are synthetic and never printed."""

import hmac
from collections.abc import Callable

from python_common.config.settings import Settings
from python_dbt.pii import masks
from tests.support.in_process import Dbt

Show = Callable[[str], list[dict]]

# Class, value as SQL, and what it is normalised to, after its domain.
PSEUDONYMS = [
    ("user", "' User_1 '", "till.user|User_1"),
    ("user", "'user_1'", "till.user|user_1"),
    ("user", "'\\u3000User_1\\u00A0\\uFEFF'", "till.user|User_1"),
    ("user", "'\\u200BUser\\u00A01\\u200D\\u2028'", "till.user|User 1"),
    ("customer", "42", "till.customer|42"),
    ("email", "'\\u00A0Zoë@Exa\\u00ADmple.COM\\u2009'", "email|zoë@example.com"),
    ("email", "'\t Zoë@Example.COM\r\n'", "email|zoë@example.com"),
    ("card_number", "'5555 0000-1111.2222'", "card_number|5555000011112222"),
]
# Class, mask, value as SQL, and its mask.
MASKS = [
    ("card_number", "last_four", "'5555-0000-1111-2222'", "2222"),
    ("card_number", "last_four", "'555500001111'", "1111"),
    # too short or too long for a card's number: a part of it would show all of it
    ("card_number", "last_four", "'55550000111'", None),
    ("card_number", "last_four", "'55550000111122223333'", None),
    ("person_name", "initials", "'  Zoë van der Berg-Smith '", "Z*** v*** d*** B***"),
    ("person_name", "initials", "'A'", "***"),
    ("person_name", "initials", "'李 明 Chen'", "*** *** C***"),
    ("person_name", "initials", "'Jo\\u3000Bee\\u00A0Dee'", "*** B*** D***"),
    # a family name of one character or syllable, or of two letters
    ("person_name", "initials", "'王伟'", "***"),
    ("person_name", "initials", "'王小明'", "***"),
    ("person_name", "initials", "'김민수'", "***"),
    ("person_name", "initials", "'やまだ ハナコ'", "*** ***"),
    ("person_name", "initials", "'Li Wei'", "*** W***"),
    ("person_name", "initials", "'Li'", "***"),
    ("postal_code", "postal_area", "' sw1a 1aa'", "SW"),
    ("postal_code", "postal_area", "'1010'", "10"),
    ("postal_code", "postal_area", "'101'", None),
    ("birth", "year", "date '1984-02-29'", 1984),
    ("birth", "year", "timestamp '1984-12-31 23:59:59.999999'", 1984),
    ("birth", "year", "'1984-02-29'", 1984),
    ("birth", "year", "'a while ago'", None),
    # a number may count days, whose text would be taken for a year
    ("birth", "year", "1984", None),
    ("birth", "year", "cast(12345 as bigint)", None),
    ("registration", "month", "1709251199999", "2024-02-01"),
    ("registration", "month", "1709251200000", "2024-03-01"),
    ("registration", "month", "-1", "1969-12-01"),
    ("registration", "month", "9223372036854775807", None),
    ("none", "as_is", "' as it is '", " as it is "),
]
WITHOUT_CONTENT = ["cast(null as string)", "''", "' \t '", "'\\u3000\\u00A0\\u200B\\uFEFF\\u200D'"]
# A value of each type that a staging column can have.
TYPES = {
    "string": "'1984-02-29 1234567890'",
    "int": "1234567",
    "bigint": "1709251199999",
    "boolean": "true",
    "float": "cast(1.5 as float)",
    "double": "1.5d",
    "decimal(9,2)": "cast(1.5 as decimal(9, 2))",
    "decimal(38,0)": "cast(15 as decimal(38, 0))",
    "date": "date '1984-02-29'",
    "timestamp": "timestamp '1984-02-29 12:00:00'",
    "timestamp_ntz": "timestamp_ntz '1984-02-29 12:00:00'",
    "binary": "x'0a'",
    "array<string>": "array('a')",
    "array<struct<a: int>>": "array(named_struct('a', 1))",
    "map<string, int>": "map('a', 1)",
    "struct<a: int, b: array<date>>": "named_struct('a', 1, 'b', array(date '1984-02-29'))",
}


# Too few digits for a card, as a number.
CARDS = [("last_four", "int")]

REFUSED = {
    "masked('stg_shop__customer', 'email')": "unknown staging model stg_shop__customer",
    "masked('stg_shop__customers', 'e_mail')": "stg_shop__customers.e_mail has no PII class",
    "masked('stg_shop__addresses', 'street')": "PII class street has no mask: its columns must be dropped",
    "masked('stg_shop__customers', 'email', as='last_four')": "masked(email) as last_four: PII class email has",
    "masked('stg_shop__customers', 'segment', as='pseudonym')": "masked(segment) as pseudonym: PII class none",
    "masked('stg_shop__customers', 'email')": "masked(email) as None: PII class email has the masks",
}


def test_masks_give_what_plain_python_gives(masking_key: Settings, show: Show) -> None:
    version, pads, _ = masking_key.pii_key_file.read_text().strip().split(":")
    key = bytes(byte ^ 0x36 for byte in bytes.fromhex(pads[:128]))
    tokens = [
        (name, "pseudonym", value, hmac.new(key, plain.encode(), "sha256").hexdigest())
        for name, value, plain in PSEUDONYMS
    ]
    of_text = {(name, mask) for name, mask, *_ in MASKS + tokens} - {("none", "as_is"), ("registration", "month")}
    nothing = [(name, mask, value, None) for name, mask in sorted(of_text) for value in WITHOUT_CONTENT]
    cases = [*tokens, *MASKS, *nothing, ("registration", "month", "cast(null as bigint)", None)]
    calls = ", ".join(
        f'{{{{ mask("{value}", "{name}", "{mask}", "till") }}}} as c{at}'
        for at, (name, mask, value, _) in enumerate(cases)
    )
    [row] = show(f"select {calls}, {{{{ pii_key_version() }}}} as key_version")
    assert row.pop("key_version") == version
    wrong = [
        (name, mask)
        for (name, mask, _, expected), masked in zip(cases, row.values(), strict=True)
        if masked != expected
    ]
    assert not wrong


def test_a_class_does_not_build_or_masks_what_it_takes_as_null(masking_key: Settings, show: Show) -> None:
    """A class whose mask does not take the type is refused by the proof, and stops no build of other datasets."""
    cases = [
        (pii, mask, data_type)
        for pii, ways in masks.load().classes.items()
        for mask in ways
        for data_type in TYPES
        if pii != masks.AS_IS
    ]
    [row] = show(
        "select "
        + ", ".join(
            f'string({{{{ mask("{TYPES[data_type]}", "{pii}", "{mask}", "till") }}}}) as c{at}'
            for at, (pii, mask, data_type) in enumerate(cases)
        )
    )
    # a value of digits alone has a card's last four, a text must not be a date and a card at once
    lacking = [
        case
        for case, masked in zip(cases, row.values(), strict=True)
        if masks.takes(case[0], case[2]) and masked is None and case[1:] not in CARDS
    ]
    assert lacking == []
    assert not any(masks.takes(pii, other) for pii in ("birth", "user") for other in TYPES if "<" in other)


def compiled(project_dbt: Dbt, text: str) -> str:
    """Return SQL written with the project's macros, or the reason why dbt refuses it."""
    result = project_dbt("compile", "--inline", text)
    return str(result.exception) if result.exception else result.result.results[0].node.compiled_code


def test_masked_lets_out_what_its_class_does_not(project_dbt: Dbt) -> None:
    of_versions = "masked('stg_shop__customers', 'email', value='versions.email', as='pseudonym')"
    assert compiled(project_dbt, f"{{{{ {of_versions} }}}}") == compiled(
        project_dbt, "{{ mask('versions.email', 'email', 'pseudonym') }}"
    )
    assert compiled(project_dbt, "{{ masked('stg_brokerage__trades', 'user_id', as='pseudonym') }}") == compiled(
        project_dbt, "{{ mask('user_id', 'user', 'pseudonym', source='brokerage') }}"
    )
    for call, message in REFUSED.items():
        assert message in compiled(project_dbt, f"{{{{ {call} }}}}")
