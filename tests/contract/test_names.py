"""Names of tables: written, read, and written again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from texts import ANY_TEXT
from wane._contract.names import TableName, join_name, parse_reference, split_name
from wane._contract.refused import Refused

PARTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_parts_of_any_characters_are_read_back(parts: list[str]) -> None:
    assert split_name(join_name(parts)) == parts


@given(PARTS, st.none() | PARTS)
def test_a_table_is_read_back(name: str, schema: str | None) -> None:
    table = TableName(name, schema)
    assert TableName.parse(str(table)) == table


@given(ANY_TEXT)
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        parts = split_name(text)
    except ValueError:
        return
    assert all(parts)
    assert split_name(join_name(parts)) == parts


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("inbox", None, "inbox"),
        ("core.inbox", "core", "inbox"),
        ('"odd.name"', None, "odd.name"),
        ('"My Schema"."odd.name"', "My Schema", "odd.name"),
        ('"a""b"', None, 'a"b'),
        ("größe", None, "größe"),
        ("two words", None, "two words"),
        ("select", None, "select"),
    ],
)
def test_a_name_is_read(text: str, schema: str | None, name: str) -> None:
    assert TableName.parse(text) == TableName(name, schema)


def test_quotes_that_are_not_needed_make_no_other_name() -> None:
    assert TableName.parse('"inbox"') == TableName.parse("inbox")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a name: write table, schema.table or \"quoted.table\""),
        (".", "'.' is not a name: write table, schema.table or \"quoted.table\""),
        ("a.", "'a.' is not a name: write table, schema.table or \"quoted.table\""),
        ("a..b", "'a..b' is not a name: write table, schema.table or \"quoted.table\""),
        ('"a', '\'"a\' is not a name: write table, schema.table or "quoted.table"'),
        ('""', '\'""\' is not a name: write table, schema.table or "quoted.table"'),
        ('"a"b', "'\"a\"b' is not a name: a dot must follow 'a'"),
        (" a", "' a' is not a name: quote parts that start or end with a space"),
        ("a\x00b", "'a\\x00b' is not a name: no database has a name with a NUL character"),
        ("a.b.c", "'a.b.c' has too many parts: write table or schema.table"),
    ],
)
def test_what_is_no_name_is_refused(text: str, message: str) -> None:
    with pytest.raises(Refused) as refused:
        TableName.parse(text)
    assert str(refused.value) == message


def test_a_reference_is_a_table_and_a_column() -> None:
    assert parse_reference("outbox.inbox_id") == (TableName("outbox"), "inbox_id")
    assert parse_reference('core."out.box".id') == (TableName("out.box", "core"), "id")
    for text in ("outbox", "a.b.c.d"):
        with pytest.raises(Refused) as refused:
            parse_reference(text)
        assert str(refused.value) == f"{text!r} is not a reference: write table.column or schema.table.column"
