"""Each mask over VALUES against plain Python, and what does not compile. Values are synthetic and never printed."""

import hmac
from collections.abc import Callable

from pyhive import hive

from python_common.config.settings import Settings
from python_common.spark.thrift import rows
from python_dbt.pii import masks
from tests.support.in_process import Dbt

Show = Callable[[str], list[dict]]

# Class, value as SQL, and what it is normalised to, after its domain.
PSEUDONYMS = [
    ("user", "' User_1 '", "till.user|User_1"),
    ("user", "'user_1'", "till.user|user_1"),
    ("customer", "42", "till.customer|42"),
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
    ("postal_code", "postal_area", "' sw1a 1aa'", "SW"),
    ("postal_code", "postal_area", "'1010'", "10"),
    ("postal_code", "postal_area", "'101'", None),
    ("birth", "year", "date '1984-02-29'", 1984),
    ("birth", "year", "timestamp '1984-12-31 23:59:59.999999'", 1984),
    ("birth", "year", "'1984-02-29'", 1984),
    ("birth", "year", "'a while ago'", None),
    ("registration", "month", "1709251199999", "2024-02-01"),
    ("registration", "month", "1709251200000", "2024-03-01"),
    ("registration", "month", "-1", "1969-12-01"),
    ("registration", "month", "9223372036854775807", None),
    ("none", "as_is", "' as it is '", " as it is "),
]
WITHOUT_CONTENT = ["cast(null as string)", "''", "' \t '"]


REFUSED = {
    "masked('stg_shop__customer', 'email')": "unknown staging model stg_shop__customer",
    "masked('stg_shop__customers', 'e_mail')": "stg_shop__customers.e_mail has no PII class",
    "masked('stg_shop__addresses', 'street')": "A column of PII class street has no mask: it must be dropped",
    "masked('stg_shop__customers', 'email', as='last_four')": "PII class email has no mask last_four",
}


def test_masks_give_what_plain_python_gives(masking_key: Settings, show: Show) -> None:
    pads = masking_key.pii_key_file.read_text().strip().split(":")[1]
    key = bytes(byte ^ 0x36 for byte in bytes.fromhex(pads[:128]))
    tokens = [
        (name, "pseudonym", value, hmac.new(key, plain.encode(), "sha256").hexdigest())
        for name, value, plain in PSEUDONYMS
    ]
    of_text = {(name, mask) for name, mask, *_ in MASKS + tokens} - {("none", "as_is"), ("registration", "month")}
    nothing = [(name, mask, value, None) for name, mask in sorted(of_text) for value in WITHOUT_CONTENT]
    cases = [*tokens, *MASKS, *nothing, ("registration", "month", "cast(null as bigint)", None)]
    [row] = show(
        "select "
        + ", ".join(
            f'{{{{ mask("{value}", "{name}", "{mask}", "till") }}}} as c{at}'
            for at, (name, mask, value, _) in enumerate(cases)
        )
    )
    wrong = [
        (name, mask)
        for (name, mask, _, expected), masked in zip(cases, row.values(), strict=True)
        if masked != expected
    ]
    assert not wrong


def compiled(project_dbt: Dbt, text: str) -> str:
    """Return SQL written with the project's macros, or the reason why dbt refuses it."""
    result = project_dbt("compile", "--inline", text)
    return str(result.exception) if result.exception else result.result.results[0].node.compiled_code


def test_masked_follows_the_declared_class_and_refuses_what_may_not_leave(project_dbt: Dbt) -> None:
    assert compiled(project_dbt, "{{ masked('stg_shop__customers', 'email', value='versions.email') }}") == compiled(
        project_dbt, "{{ mask('versions.email', 'email', 'pseudonym') }}"
    )
    assert compiled(project_dbt, "{{ masked('stg_brokerage__trades', 'user_id') }}") == compiled(
        project_dbt, "{{ mask('user_id', 'user', source='brokerage') }}"
    )
    for call, message in REFUSED.items():
        assert message in compiled(project_dbt, f"{{{{ {call} }}}}")


def test_the_line_of_a_key_names_the_domain_of_its_pseudonyms(masking_key: Settings, cursor: hive.Cursor) -> None:
    line = masking_key.pii_key_file.read_text().strip()
    pads = line.split(":")[1]
    key = bytes(byte ^ 0x36 for byte in bytes.fromhex(pads[:128]))
    rows(cursor, f"create or replace temporary view pii_both as select * from values ('{line}') as pads (value)")
    rows(cursor, f"create or replace temporary view pii_v0 as select * from values ('v0:{pads}') as pads (value)")
    for pii, view, domain in (
        ("user", "pii_both", "brokerage.user"),
        ("user", "pii_v0", "user"),
        ("email", "pii_both", "email"),
    ):
        [[pseudonym]] = rows(
            cursor, f"select {masks.pseudonyms('id', pii, 'brokerage', view)[0]} from values (' 7 ') as t (id)"
        )
        assert pseudonym == hmac.new(key, f"{domain}|7".encode(), "sha256").hexdigest()
    # SHOW VIEWS lists them in each schema, for all tests of this session.
    for view in ("pii_both", "pii_v0"):
        rows(cursor, f"drop view {view}")
