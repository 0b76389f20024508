"""Keys and references of a type that brings operators of its own, as `citext` does: compared by those, though no bare
name finds them."""

from __future__ import annotations

import pytest

from prune.keeping import KEEP_WEEK, ago, follower, insert, keeping, referenced_by, rule, table
from servers import PostgresDatabase
from wane._contract.model import Cap, Rule
from wane._prune.pace import FAST, Pace
from wane._sqlfunctions import install

# Texts without regard to case, made of what every PostgreSQL has.
FOLDED = """
CREATE SCHEMA types;
SET search_path = types;
CREATE TYPE folded;
CREATE FUNCTION folded_in(cstring) RETURNS folded LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION folded_out(folded) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE folded (INPUT = folded_in, OUTPUT = folded_out, LIKE = text, CATEGORY = 'S');
CREATE CAST (folded AS text) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (text AS folded) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE FUNCTION folded_cmp(folded, folded) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE WHEN lower($1::text) < lower($2::text) THEN -1 WHEN lower($1::text) = lower($2::text) THEN 0 ELSE 1 END $$;
DO $$
DECLARE one record;
BEGIN
  FOR one IN SELECT * FROM (VALUES ('lt', '<'), ('le', '<='), ('eq', '='), ('ge', '>='), ('gt', '>')) AS o(name, sign) LOOP
    EXECUTE format('CREATE FUNCTION folded_%s(folded, folded) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT AS
      ''SELECT types.folded_cmp($1, $2) %s 0''', one.name, one.sign);
    EXECUTE format('CREATE OPERATOR %s (LEFTARG = folded, RIGHTARG = folded, FUNCTION = folded_%s)', one.sign, one.name);
  END LOOP;
END $$;
CREATE OPERATOR CLASS folded_ops DEFAULT FOR TYPE folded USING btree AS
  OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 folded_cmp(folded, folded);
RESET search_path;
CREATE TABLE job (id types.folded PRIMARY KEY, at_ms bigint);
CREATE INDEX job_age ON job (at_ms, id);
"""
NOTE = """
CREATE TABLE note (id integer PRIMARY KEY, job_id types.folded REFERENCES job (id));
CREATE INDEX note_job ON note (job_id);
"""
NAMES = ("Ada", "bob", "Cid", "dan", "Eve")
SMALL = Pace(target_seconds=1.0, duty=1.0, first_batch=2, least_batch=2, most_batch=2)
RULES = {
    "plain": rule("old", KEEP_WEEK, when=()),
    "guarded": rule("old", KEEP_WEEK, when=(), unless=[referenced_by("note.job_id")]),
    "followed": rule("old", KEEP_WEEK, when=(), followers=[follower("note.job_id")]),
    "capped": rule("old", Cap(KEEP_WEEK.time, 2), when=()),
}


def filled(database: PostgresDatabase, *, notes: bool) -> None:
    database.script(FOLDED)
    insert(database, "job", "id, at_ms", *[(name, ago(30)) for name in NAMES])
    if notes:
        database.script(NOTE)
        insert(database, "note", "id, job_id", (1, "CID"), (2, "cid"), (3, "EVE"))


@pytest.mark.parametrize("which", RULES)
@pytest.mark.parametrize("how", ["sweep", "prune", "sql"])
def test_rows_are_compared_as_their_type_compares_them(
    postgres_database: PostgresDatabase, which: str, how: str
) -> None:
    database, declared = postgres_database, RULES[which]
    filled(database, notes=which in ("guarded", "followed"))
    with keeping(database, table("job", declared, state=None)) as opened:
        if how == "sweep":
            opened.keeper.enable()
            [swept] = opened.keeper.sweep(pace=SMALL, approve=["job.old"]).rules
            assert swept.message == ""
        elif how == "prune":
            opened.keeper.prune("job", rule="old", limit=10)
        else:
            install(opened.keeper)
            database.query("SELECT wane.prune('job', 'old', 10)")
        left = [name for (name,) in database.query("SELECT id::text FROM job ORDER BY job.id")]
        # What was written at the same time stands in the order of its key, which is not that of its bytes.
        assert left == {"guarded": ["Cid", "Eve"], "capped": ["dan", "Eve"]}.get(which, [])
        if which in ("guarded", "followed"):
            assert database.query("SELECT count(*) FROM note") == [(3 if which == "guarded" else 0,)]


def test_a_held_row_is_found_by_its_key(postgres_database: PostgresDatabase) -> None:
    filled(postgres_database, notes=False)
    declared: Rule = RULES["plain"]
    with keeping(postgres_database, table("job", declared, state=None)) as opened:
        opened.keeper.hold("job", {"id": "ADA"}, reason="court")
        opened.keeper.enable()
        opened.keeper.sweep(pace=FAST, approve=["job.old"])
        assert postgres_database.query("SELECT id::text FROM job") == [("Ada",)]
