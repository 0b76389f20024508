"""What is written is read back exactly, whatever the names and texts are."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from texts import ANY_TEXT
from wane._contract import toml

NASTY = ANY_TEXT | st.text(alphabet="\"\\'.#=[]{}\n\r\t\x00\x1b\x7f\x85\u2028\u202eü 漢😀")
VALUES = st.recursive(
    NASTY | st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NASTY, inner, max_size=4),
    max_leaves=10,
)


@given(NASTY, VALUES)
def test_any_key_and_value_are_read_back_exactly(name: str, value: object) -> None:
    assert tomllib.loads(f"{toml.key(name)} = {toml.value(value)}\n") == {name: value}


@given(NASTY, NASTY, NASTY)
def test_any_names_make_a_heading(first: str, second: str, inner: str) -> None:
    text = f"[table.{toml.key(first)}.rule.{toml.key(second)}]\n{toml.key(inner)} = 1\n"
    assert tomllib.loads(text) == {"table": {first: {"rule": {second: {inner: 1}}}}}


@given(NASTY)
def test_no_text_breaks_out_of_a_comment(sentence: str) -> None:
    line = toml.comment(sentence)
    assert len(line.splitlines()) == 1
    assert tomllib.loads(f"{line}\nafter = 1\n") == {"after": 1}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", '"plain"'),
        ('a "b" \\c', '"a \\"b\\" \\\\c"'),
        ("line\nbreak", '"line\\nbreak"'),
        ("\x00\u202e", '"\\u0000\\u202E"'),
        ("Größe 漢", '"Größe 漢"'),
        (["a", 1, True], '["a", 1, true]'),
        ({"a b": {"c": False}}, '{ "a b" = { c = false } }'),
    ],
)
def test_what_is_written_stays_readable(value: object, written: str) -> None:
    assert toml.value(value) == written


def test_a_value_that_no_contract_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="float cannot be written in a contract"):
        toml.value(1.5)
