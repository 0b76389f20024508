"""The statements that convert a plain table to a partitioned one, and back.

Everything that takes long or can fail happens before: the swap itself renames, attaches and recreates, so that the
application waits for milliseconds. Texts of definitions are PostgreSQL's own, and are executed once their names denote
the right table again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.statement import text_literal
from wane._partition.anatomy import (
    Anatomy,
    AnatomyIndex,
    AnatomyTrigger,
    Standing,
    fitted,
    own_names,
    quote,
)
from wane._partition.records import MIN, Ddl, Range

_EXCLUSIVE = "ACCESS EXCLUSIVE"
_STATES = {"D": "DISABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}


def root_name(a: Anatomy) -> str:
    """Return where the partitioned table is built until it replaces the table: out of the application's sight."""
    return f"{OWN_SCHEMA}.{quote(fitted(f'{a.schema}_{a.name}', '_root'))}"


def old_name(a: Anatomy, until: str) -> str:
    """Return the name of the table as the partition of everything before a month such as 2026_12."""
    return fitted(a.name, f"_p_before_{until}")


def month_name(a: Anatomy, month: str) -> str:
    return fitted(a.name, f"_p_{month}")


def rest_name(a: Anatomy) -> str:
    """Return the name of the partition that catches what lies beyond every month."""
    return fitted(a.name, "_p_after")


def early_name(a: Anatomy) -> str:
    """Return the name of the partition that catches what lies before every month, once the original table is gone."""
    return fitted(a.name, "_p_before")


def qualified_name(a: Anatomy, name: str) -> str:
    return f"{quote(a.schema)}.{quote(name)}"


# Before the swap


def index_statements(a: Anatomy) -> list[tuple[str, Ddl]]:
    """Build the indexes that the swap needs, with their names: the new primary key's, and the old one's, for
    undoing."""
    if not a.extended:
        return []
    key, unpartitioned, _ = own_names(a.name)
    lock = f"SHARE UPDATE EXCLUSIVE on {a.table}: blocks neither reads nor writes"
    columns = ", ".join(quote(name) for name in [*a.key, a.time])
    return [
        (
            key,
            Ddl(f"CREATE UNIQUE INDEX CONCURRENTLY {quote(key)} ON {a.table} ({columns})", lock, "the new primary key"),
        ),
        (
            unpartitioned,
            Ddl(
                f"CREATE UNIQUE INDEX CONCURRENTLY {quote(unpartitioned)} ON {a.table} {a.primary.tail}",
                lock,
                "the old primary key, so that going back takes no time",
            ),
        ),
    ]


def root_statements(a: Anatomy) -> Iterator[Ddl]:
    """Yield the statements of the partitioned table, empty, with everything that it can have before the swap."""
    root = root_name(a)
    lock = "none that blocks"
    kinds = "DEFAULTS", "GENERATED", "STORAGE", "COMPRESSION", "COMMENTS", "CONSTRAINTS", "STATISTICS"
    like = " ".join(f"INCLUDING {kind}" for kind in kinds)
    yield Ddl(
        f"CREATE TABLE {root} (LIKE {a.table} {like}) PARTITION BY RANGE ({quote(a.time)})",
        f"ACCESS SHARE on {a.table}",
        "the partitioned table, which nothing uses yet",
    )
    yield Ddl(f"ALTER TABLE {root} OWNER TO {quote(a.owner)}", lock, "the same owner")
    key = ", ".join(quote(name) for name in ([*a.key, a.time] if a.extended else a.key))
    primary = a.primary
    yield Ddl(
        f"ALTER TABLE {root} ADD CONSTRAINT {quote(primary.constraint or primary.name)} PRIMARY KEY ({key})",
        lock,
        "the primary key, extended by the time" if a.extended else "the primary key",
    )
    if primary.constraint is not None and primary.constraint_comment is not None:
        about = (
            f"COMMENT ON CONSTRAINT {quote(primary.constraint)} ON {root} IS {text_literal(primary.constraint_comment)}"
        )
        yield Ddl(about, lock, "its comment")
    for index in a.shared:
        yield Ddl(_index(index, root), lock, "the same index, in every partition")
        if index.comment is not None:
            yield Ddl(
                f"COMMENT ON INDEX {OWN_SCHEMA}.{quote(index.name)} IS {text_literal(index.comment)}",
                lock,
                "its comment",
            )
    for key_out in a.outbound:
        yield Ddl(
            f"ALTER TABLE {root} ADD CONSTRAINT {quote(key_out.name)} {key_out.definition}",
            f"SHARE ROW EXCLUSIVE on {key_out.table}: blocks its writers for as long as an empty table takes",
            "the same foreign key",
        )
    yield from (Ddl(text, lock, "comment, rights, policies, statistics") for text in dress(a, root))


def _index(index: AnatomyIndex, table: str) -> str:
    if index.constraint is not None and index.constraint_kind == "u":
        return f"ALTER TABLE {table} ADD CONSTRAINT {quote(index.constraint)} {index.constraint_definition}"
    return f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {quote(index.name)} ON {table} {index.tail}"


def dress(a: Anatomy, table: str) -> Iterator[str]:
    """Yield the statements of a table's comment, rights, statistics targets and policies."""
    if a.comment is not None:
        yield f"COMMENT ON TABLE {table} IS {text_literal(a.comment)}"
    for columns, grantee, privilege, grantable in a.grants:
        yield grant(table, columns, grantee, privilege, grantable)
    yield from _statistics(a, table)
    if a.row_security:
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
    if a.force_row_security:
        yield f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
    for _, text in a.policies:
        yield text.replace("{table}", table, 1)


def grant(table: str, columns: str, grantee: str, privilege: str, grantable: object) -> str:
    what = f"{privilege} ({columns})" if columns else privilege
    return f"GRANT {what} ON {table} TO {grantee}{' WITH GRANT OPTION' if grantable else ''}"


def _statistics(a: Anatomy, table: str) -> Iterator[str]:
    for column in a.columns:
        if column.statistics >= 0:
            yield f"ALTER TABLE {table} ALTER COLUMN {quote(column.name)} SET STATISTICS {column.statistics}"
        if column.options:
            yield f"ALTER TABLE {table} ALTER COLUMN {quote(column.name)} SET ({', '.join(column.options)})"


def leaf_statements(a: Anatomy, root: str, name: str, range_: Range) -> Iterator[str]:
    """Yield the statements of a partition, with what it does not inherit from the partitioned table."""
    leaf = qualified_name(a, name)
    options = [*a.options, *(f"toast.{option}" for option in a.toast_options)]
    text = f"CREATE TABLE {leaf} PARTITION OF {root} FOR VALUES {range_.sql}"
    text += f" WITH ({', '.join(options)})" if options else ""
    yield text + (f" TABLESPACE {quote(a.tablespace)}" if a.tablespace else "")
    yield f"ALTER TABLE {leaf} OWNER TO {quote(a.owner)}"
    yield from leaf_details(a, name)


def leaf_details(a: Anatomy, name: str) -> Iterator[str]:
    leaf = qualified_name(a, name)
    for number, index in enumerate(a.unpartitioned_indexes):
        yield f"CREATE UNIQUE INDEX {quote(unpartitioned_name(name, number))} ON {leaf} {index.tail}"
    yield from _statistics(a, leaf)
    if a.replica_identity in ("f", "n"):
        yield f"ALTER TABLE {leaf} REPLICA IDENTITY {'FULL' if a.replica_identity == 'f' else 'NOTHING'}"


def unpartitioned_name(leaf: str, number: int) -> str:
    """Return the name of one partition's index for a unique key that only partitions can have."""
    return fitted(leaf, f"_u{number}")


def bound_statements(a: Anatomy, upper: str) -> list[Ddl]:
    """Build the constraint that proves that every row lies before a time: first for new rows, then for all."""
    bound = own_names(a.name)[2]
    return [
        Ddl(
            f"ALTER TABLE {a.table} ADD CONSTRAINT {quote(bound)} CHECK ({quote(a.time)} < {text_literal(upper)}) NOT VALID",
            f"{_EXCLUSIVE} on {a.table}: blocks reads and writes for milliseconds",
            "no new row lies beyond",
        ),
        Ddl(
            validate_constraint(a.table, bound),
            f"SHARE UPDATE EXCLUSIVE on {a.table}: blocks neither reads nor writes",
            "and no old one does",
        ),
    ]


def analyze(table: str) -> str:
    return f"ANALYZE {table}"


def validate_constraint(table: str, constraint: str) -> str:
    return f"ALTER TABLE {table} VALIDATE CONSTRAINT {quote(constraint)}"


# The swap


def swap_statements(a: Anatomy, old: str, upper: str) -> Iterator[str]:
    """Yield the statements that make the table a partition and the partitioned table its replacement, all in one
    transaction."""
    root, before = root_name(a), qualified_name(a, old)
    for key in a.inbound:
        yield f"ALTER TABLE {key.table} DROP CONSTRAINT {quote(key.name)}"
    for trigger in a.triggers:
        yield f"DROP TRIGGER {quote(trigger.name)} ON {a.table}"
    if a.identity is not None:
        yield f"ALTER TABLE {a.table} ALTER COLUMN {quote(a.identity.column)} DROP IDENTITY"
    primary = quote(a.primary.constraint or a.primary.name)
    renamed = quote(fitted(old, "_pkey"))
    if a.extended:
        yield f"ALTER TABLE {a.table} DROP CONSTRAINT {primary}"
        key_index = quote(own_names(a.name)[0])
        yield f"ALTER TABLE {a.table} ADD CONSTRAINT {renamed} PRIMARY KEY USING INDEX {key_index}"
    else:
        yield f"ALTER TABLE {a.table} RENAME CONSTRAINT {primary} TO {renamed}"
    for index in a.shared:
        if index.constraint is not None:
            yield f"ALTER TABLE {a.table} RENAME CONSTRAINT {quote(index.constraint)} TO {quote(old_index(index))}"
        else:
            yield f"ALTER INDEX {qualified_name(a, index.name)} RENAME TO {quote(old_index(index))}"
    yield f"ALTER TABLE {a.table} RENAME TO {quote(old)}"
    yield f"ALTER TABLE {root} SET SCHEMA {quote(a.schema)}"
    yield f"ALTER TABLE {quote(a.schema)}.{root.partition('.')[2]} RENAME TO {quote(a.name)}"
    yield f"ALTER TABLE {a.table} ATTACH PARTITION {before} FOR VALUES {Range(MIN, upper).sql}"
    yield f"ALTER TABLE {before} DROP CONSTRAINT {quote(own_names(a.name)[2])}"
    yield from _identity(a)
    yield from own_sequences(a)
    yield from trigger_statements(a.triggers, a.table)
    for key in a.retained_keys:
        yield from key_statements(key.table, key.name, key.definition, key.comment, partitioned=key.partitioned)
    yield from view_statements(a.views)


def old_index(index: AnatomyIndex) -> str:
    """Return the name of an index of the table while the table is a partition."""
    return fitted(index.constraint or index.name, "_p_old")


def _identity(a: Anatomy) -> Iterator[str]:
    """Yield the statements of the column's identity, with a sequence of the same name; the caller sets its position."""
    one = a.identity
    if one is None:
        return
    how = "ALWAYS" if one.always else "BY DEFAULT"
    yield (
        f"ALTER TABLE {a.table} ALTER COLUMN {quote(one.column)} ADD GENERATED {how} AS IDENTITY (SEQUENCE NAME {one.name}"
        f" START {one.start} INCREMENT {one.increment} MINVALUE {one.least} MAXVALUE {one.most} CACHE {one.cache}"
        f"{' CYCLE' if one.cycle else ''})"
    )
    for grantee, privilege, grantable in one.grants:
        yield f"GRANT {privilege} ON SEQUENCE {one.name} TO {grantee}{' WITH GRANT OPTION' if grantable else ''}"
    if one.comment is not None:
        yield f"COMMENT ON SEQUENCE {one.name} IS {text_literal(one.comment)}"


def own_sequences(a: Anatomy) -> Iterator[str]:
    """Yield the statements that give sequences to the right table: they are dropped with the column that owns them."""
    for column in a.columns:
        if column.sequence is not None and not column.identity:
            yield f"ALTER SEQUENCE {column.sequence} OWNED BY {a.table}.{quote(column.name)}"


def trigger_statements(triggers: Sequence[AnatomyTrigger], table: str) -> Iterator[str]:
    for trigger in triggers:
        yield trigger.definition
        if trigger.enabled in _STATES:
            yield f"ALTER TABLE {table} {_STATES[trigger.enabled]} TRIGGER {quote(trigger.name)}"
        if trigger.comment is not None:
            yield f"COMMENT ON TRIGGER {quote(trigger.name)} ON {table} IS {text_literal(trigger.comment)}"


def key_statements(
    table: str, name: str, definition: str, comment: str | None, *, partitioned: bool = False
) -> Iterator[str]:
    """Yield the statements of a foreign key to the table.

    New rows are checked at once; old ones are validated later, while the application runs.
    """
    yield f"ALTER TABLE {table} ADD CONSTRAINT {quote(name)} {definition}{'' if partitioned else ' NOT VALID'}"
    if comment is not None:
        yield f"COMMENT ON CONSTRAINT {quote(name)} ON {table} IS {text_literal(comment)}"


def view_statements(views: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the statements that recreate views: a view refers to its tables by OID, not by name."""
    for view, text, options in views:
        given = f" WITH ({', '.join(options)})" if options else ""
        yield f"CREATE OR REPLACE VIEW {view}{given} AS {text.rstrip().removesuffix(';')}"


# The swap back


def swap_back_statements(
    a: Anatomy, now: Standing, base: str, filled: Sequence[str], *, original: bool
) -> Iterator[str]:
    """Yield the statements that make one partition the table again.

    The others are dropped if they are empty, and otherwise inherit from it until they are. `original`: the base is the
    original table, which still has its own rights and comments.
    """
    was, replaced = qualified_name(a, base), fitted(a.name, "_p_aside")
    for key in now.inbound:
        yield f"ALTER TABLE {key.table} DROP CONSTRAINT {quote(key.name)}"
    for leaf in now.leaves:
        yield f"ALTER TABLE {a.table} DETACH PARTITION {qualified_name(a, leaf)}"
    for column in a.columns:
        if column.sequence is not None and not column.identity:
            yield f"ALTER SEQUENCE {column.sequence} OWNED BY {was}.{quote(column.name)}"
    yield f"ALTER TABLE {a.table} RENAME TO {quote(replaced)}"
    yield f"ALTER TABLE {was} RENAME TO {quote(a.name)}"
    yield from view_statements(now.views)
    yield f"DROP TABLE {qualified_name(a, replaced)}"
    yield from _restore_keys(a, base, now.indexes[base], original=original)
    yield from _identity(a)
    yield from trigger_statements(now.triggers, a.table)
    yield from _restore_attributes(a, now, original=original)
    for leaf in now.leaves:
        if leaf == base:
            continue
        if leaf not in filled:
            yield f"DROP TABLE {qualified_name(a, leaf)}"
            continue
        # Changes to its rows through the table must still fire the table's triggers.
        yield from trigger_statements(now.leaf_triggers.get(leaf, ()), qualified_name(a, leaf))
        yield f"ALTER TABLE {qualified_name(a, leaf)} INHERIT {a.table}"


def _restore_attributes(a: Anatomy, now: Standing, *, original: bool) -> Iterator[str]:
    """Yield the current rights, comments and policies, where they differ from those of the base."""
    if now.comment != (a.comment if original else None):
        yield f"COMMENT ON TABLE {a.table} IS {'NULL' if now.comment is None else text_literal(now.comment)}"
    if now.grants != (a.grants if original else []):
        for grantee in dict.fromkeys(one[1] for one in a.grants):
            yield f"REVOKE ALL ON {a.table} FROM {grantee}"
        for columns, grantee, privilege, grantable in now.grants:
            yield grant(a.table, columns, grantee, privilege, grantable)
    if now.policies != (a.policies if original else []):
        for name, _ in a.policies if original else ():
            yield f"DROP POLICY {name} ON {a.table}"
        for _, text in now.policies:
            yield text.replace("{table}", a.table, 1)
    if not original:
        yield from a.details
        if a.row_security:
            yield f"ALTER TABLE {a.table} ENABLE ROW LEVEL SECURITY"
        if a.force_row_security:
            yield f"ALTER TABLE {a.table} FORCE ROW LEVEL SECURITY"


def _restore_keys(a: Anatomy, base: str, indexes: Mapping[str, str], *, original: bool) -> Iterator[str]:
    primary = quote(a.primary.constraint or a.primary.name)
    current = quote(indexes[a.primary.constraint or a.primary.name])
    unpartitioned = [own_names(a.name)[1] if original else unpartitioned_name(base, 0)] if a.extended else []
    if a.extended:
        yield f"ALTER TABLE {a.table} DROP CONSTRAINT {current}"
        yield f"ALTER TABLE {a.table} ADD CONSTRAINT {primary} PRIMARY KEY USING INDEX {quote(unpartitioned[0])}"
    else:
        yield f"ALTER TABLE {a.table} RENAME CONSTRAINT {current} TO {primary}"
    if a.primary.constraint_comment is not None:
        yield f"COMMENT ON CONSTRAINT {primary} ON {a.table} IS {text_literal(a.primary.constraint_comment)}"
    for name, at_base in indexes.items():
        if name == (a.primary.constraint or a.primary.name):
            continue
        known = next((one for one in a.shared if (one.constraint or one.name) == name), None)
        if known is not None and known.constraint is not None:
            yield f"ALTER TABLE {a.table} RENAME CONSTRAINT {quote(at_base)} TO {quote(name)}"
        else:
            yield f"ALTER INDEX {qualified_name(a, at_base)} RENAME TO {quote(name)}"
    for number, index in enumerate([] if original else a.unpartitioned_indexes):
        if index.primary:
            continue
        if index.constraint is not None:
            using = quote(unpartitioned_name(base, number))
            yield f"ALTER TABLE {a.table} ADD CONSTRAINT {quote(index.constraint)} UNIQUE USING INDEX {using}"
        else:
            yield f"ALTER INDEX {qualified_name(a, unpartitioned_name(base, number))} RENAME TO {quote(index.name)}"
