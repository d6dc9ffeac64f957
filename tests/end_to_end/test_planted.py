"""The search itself: it finds every form, wherever it begins, and nothing where nothing is."""

from tests.support import planted

VALUES = {"email": {"\tzoë.o'neil@example.com"}, "account": {"ACC4CW85KXQJ"}}
JUNK = bytes(range(256)) * 3


def test_every_form_is_found_wherever_it_begins() -> None:
    patterns = planted.index_of_texts(VALUES)
    missed = {
        f"{field} {form} at {start}"
        for field, texts in VALUES.items()
        for text in texts
        for form, pattern in planted.text_forms(text)
        for start in range(planted.STRIDE)
        if f"{field} {form}" not in planted.search(patterns, JUNK[:start] + pattern + JUNK)
    }
    assert not missed


def test_a_value_inside_encoded_text_is_found() -> None:
    patterns = planted.index_of_texts(VALUES)
    for before in range(4):
        content = b"x" * before + b"ACC4CW85KXQJ" + b"and more"
        assert "account raw, base64" in planted.search(patterns, planted.base64.b64encode(content))
