"""Reading the archive: a condition reads the row, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import py4j.java_gateway
import pytest
from pyspark.errors import PySparkException

from archive import inline
from archive.cold import Cold, cold_keeper, events
from servers import SqliteDatabase
from wane.errors import WrongArgument

HOSTILE = {
    "another file": "id IN (SELECT value FROM text.`/etc/passwd`)",
    "another table": "EXISTS (SELECT 1 FROM event_read)",
    "a scalar query": "(SELECT count(*) FROM parquet.`cold/event_read`) > 0",
    "a query inside a function": "coalesce((SELECT 1), 1) = 1",
    "a query inside a case": "CASE WHEN id IN (SELECT 1) THEN true ELSE false END",
    "Java": "java_method('java.lang.System', 'exit', 0) = 'x'",
    "Java by another name": "reflect('java.lang.System', 'getenv', 'HOME') = 'x'",
    "Java, quietly": "try_reflect('java.lang.System', 'exit', 0) IS NULL",
    "an error on purpose": "raise_error('x') IS NULL",
    "the files": "input_file_name() LIKE '%'",
    "the files by a hidden column": "_metadata.file_path LIKE '%'",
    "who is asking": "current_user() = 'x'",
    "a session's variable": "session.secret = 1",
    "a name made of a text": "identifier('id') = 1",
    "a parameter": "id = :id",
    "memory": "size(sequence(1, 1000000000)) > 0",
    "more memory": "length(repeat(body, 100000000)) > 0",
    "a window": "count(*) OVER () > 1",
    "a function of functions": "exists(array(1), x -> x > 0)",
    "a function somewhere else": "other.upper(body) = 'X'",
    "a second statement": "1 = 1; DROP TABLE event",
    "a comment in front of one": "1 = 1 -- \n UNION SELECT 1",
    "all columns": "*",
    "nothing": "",
    "a table by its name": "id = (TABLE event)",
    "a query that begins with its table": "id IN (FROM status)",
    "a function in backquotes": "`reflect`('java.lang.System', 'getenv', 'HOME') = 'x'",
    "two columns that Spark reads as one name": "`id``status` = 1",
    "a function behind a backquote in backquotes": "`id``reflect`('java.lang.System', 'getenv', 'HOME') = 'x'",
    "a function in quotes": "\"reflect\"('java.lang.System', 'getenv', 'HOME') = 'x'",
    "a text that hides a comment": "body = r'\\' OR java_method('java.lang.System', 'exit', 0) = '",
    "a comment that hides a text": "id = 1 /* ' */ OR reflect('a', 'b') = '",
    "too much of it": "id = 1 OR " * 12_000 + "id = 2",
}


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cold]:
    folder = tmp_path_factory.mktemp("query")
    database = SqliteDatabase(folder / "test.db")
    events(database, 30)
    with cold_keeper(database, folder) as keeping:
        with pytest.MonkeyPatch.context() as patch:  # What a test replaces is not replaced yet.
            inline.without_spark(patch)
            keeping.one()
        yield keeping
    database.close()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_condition_that_does_more_than_read_the_row_is_refused(cold: Cold, what: str) -> None:
    with pytest.raises(WrongArgument):
        cold.keeper.archive.query("event", where=HOSTILE[what])


@pytest.mark.on_spark
@pytest.mark.parametrize("where", ["id + 1", "id = ", "id LIKE", "CASE id", "id IN (id, *)"])
def test_what_is_no_condition_is_refused(cold: Cold, where: str) -> None:
    with pytest.raises(WrongArgument):
        cold.keeper.archive.query("event", where=where).collect()


@pytest.mark.on_spark
@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("id BETWEEN 3 AND 5", 3),
        ("ID IN (1, 2, 99) AND NOT body IS NULL", 2),
        ("body LIKE 'body 1%' OR body ILIKE any ('BODY 2 %', 'x')", 12),
        ("_month >= '2000-01' AND length(body) % 2 = 0 AND id < 10", 9),
        ("timestamp_millis(at_ms) < current_timestamp - INTERVAL 90 DAYS", 30),
        ("amount::double = 0.25 AND upper(status) = 'DONE'", 1),
        ("CASE WHEN id = 7 THEN true ELSE id <=> 8 END", 2),
        ("extract(year FROM timestamp_millis(at_ms)) > 2000 AND substring(body FROM 1 FOR 4) = 'body'", 30),
        ("body = 'it''s -- ; (SELECT 1)'", 0),
        ("(id, status) IN ((1L, 'done'), (2L, \"done\")) OR body = 'it\\'s -- (SELECT 1)'", 2),
        (
            "trim(BOTH 'b' FROM body) = 'ody 3 \U0001f600' AND cast(id AS decimal(10, 2)) * 1.5e0 > -.5 AND at_ms > 10L",
            1,
        ),
    ],
)
def test_what_people_request_is_answered(cold: Cold, where: str, rows: int) -> None:
    assert cold.keeper.archive.query("event", where=where).count() == rows


@pytest.mark.on_spark
def test_what_spark_states_of_a_mistake_or_of_ctrl_c_is_not_logged(
    cold: Cold, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PySparkException):
        cold.keeper.archive.query("event", where="id = 'abc'").collect()
    root = logging.getLogger()
    root.handle(root.makeRecord("root", logging.ERROR, py4j.java_gateway.__file__, 1, "KeyboardInterrupt", (), None))
    assert caplog.records == []
    assert "CAST_INVALID_INPUT" not in capfd.readouterr().err
    root.error("somebody else's")
    assert [record.getMessage() for record in caplog.records] == ["somebody else's"]


@pytest.mark.on_spark
def test_columns_are_names_and_nothing_else(cold: Cold, tmp_path: Path) -> None:
    archive = cold.keeper.archive
    assert archive.query("event", columns=["id", "_sweep"], limit=1).columns == ["id", "_sweep"]
    for name in ("count(*)", "*", "id AS x", "nothing", "_metadata", "ID`"):
        with pytest.raises(WrongArgument, match="has no column"):
            archive.query("event", columns=[name])
