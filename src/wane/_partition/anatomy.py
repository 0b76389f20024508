"""The definition of a table: everything that a partitioned table replacing it must have too, and that undoing must
restore.

Read from the catalogs with an empty search path, so that every text qualifies its objects and can be executed
unchanged. What partitions cannot have is reported as a refusal, with what to do about it.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from wane._db.statement import Dialect, Execute
from wane._partition import sql_catalog

KEY_SUFFIX = "_p_key"
"""The index of the new primary key, until that constraint exists."""
UNPARTITIONED_SUFFIX = "_p_alone"
"""The index of the old primary key, which becomes the primary key again when partitioning is undone."""
RETIRE_ONLY = (
    'write `made_by = "application"` under [partition] if the application makes its partitions, and Wane retires them'
)
BOUND_SUFFIX = "_p_bound"
"""The constraint which proves that no row lies beyond the first month."""


Refusal = tuple[str, str]
"""What prevents partitioning a table, and what to do about it."""


class _Relation(NamedTuple):
    """A table as `sql_catalog.TABLE` reads it."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    is_partition: bool
    is_typed: bool
    row_security: bool
    force_row_security: bool
    replica_identity: str
    owner: str
    comment: str | None
    options: list[str]
    toast_options: list[str]
    tablespace: str | None
    inherits: bool
    has_labels: bool


@dataclass(frozen=True, slots=True)
class AnatomyColumn:
    """A column and its special properties."""

    name: str
    type: str
    not_null: bool
    identity: str
    """"a" always, "d" by default, "" none."""
    generated: bool
    statistics: int
    options: list[str]
    sequence: str | None
    """The qualified name of the sequence that it owns."""


@dataclass(frozen=True, slots=True)
class AnatomyIndex:
    """An index. `tail` is its definition from USING on."""

    name: str
    unique: bool
    primary: bool
    valid: bool
    columns: list[str | None]
    partial: bool
    tail: str
    comment: str | None
    constraint: str | None
    constraint_kind: str | None
    constraint_definition: str | None
    constraint_comment: str | None


@dataclass(frozen=True, slots=True)
class AnatomyKey:
    """A foreign key of the table (`table` is the referenced table) or to it (`table` is the referencing table)."""

    name: str
    table: str
    definition: str
    columns: list[str]
    """For a key to the table: the columns that it refers to."""
    partitioned: bool
    comment: str | None


@dataclass(frozen=True, slots=True)
class AnatomyTrigger:
    """A trigger."""

    name: str
    definition: str
    enabled: str
    comment: str | None


@dataclass(frozen=True, slots=True)
class AnatomySequence:
    """The sequence of an identity column."""

    column: str
    always: bool
    name: str
    start: int
    increment: int
    least: int
    most: int
    cache: int
    cycle: bool
    comment: str | None
    grants: list[list[Any]]


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The whole definition of a table, without its rows."""

    schema: str
    name: str
    owner: str
    comment: str | None
    options: list[str]
    toast_options: list[str]
    tablespace: str | None
    replica_identity: str
    row_security: bool
    force_row_security: bool
    time: str
    key: list[str]
    columns: list[AnatomyColumn]
    indexes: list[AnatomyIndex]
    outbound: list[AnatomyKey]
    inbound: list[AnatomyKey]
    triggers: list[AnatomyTrigger]
    policies: list[list[str]]
    """Quoted names and definitions."""
    grants: list[list[Any]]
    views: list[list[Any]]
    identity: AnatomySequence | None
    details: list[str]
    """Statements for the rest: comments on its parts, statistics over several columns."""
    by_application: bool = False
    """Whether the application makes its partitions: Wane makes none, and covers no range that one leaves."""

    @property
    def table(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def primary(self) -> AnatomyIndex:
        return next(index for index in self.indexes if index.primary)

    @property
    def extended(self) -> bool:
        """Check whether the primary key has to be extended by the time column."""
        return self.time not in self.key

    @property
    def shared(self) -> list[AnatomyIndex]:
        """Return the indexes that the partitioned table itself can have."""
        return [one for one in self.indexes if not one.primary and (not one.unique or self.time in one.columns)]

    @property
    def unpartitioned_indexes(self) -> list[AnatomyIndex]:
        """Return the unique indexes without the time column, which only each partition can have for itself.

        The old primary key is the first of them.
        """
        old = [self.primary] if self.extended else []
        return old + [one for one in self.indexes if not one.primary and one.unique and self.time not in one.columns]

    @property
    def broken_keys(self) -> list[AnatomyKey]:
        """Return the foreign keys to the table that cannot be preserved."""
        return [one for one in self.inbound if self.time not in one.columns]

    @property
    def retained_keys(self) -> list[AnatomyKey]:
        return [one for one in self.inbound if self.time in one.columns]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a partitioned table currently has that its plain form must have too."""

    comment: str | None
    leaves: list[str]
    indexes: dict[str, dict[str, str]]
    """For every leaf its indexes, or their constraints, by their names on the partitioned table."""
    triggers: list[AnatomyTrigger]
    leaf_triggers: dict[str, list[AnatomyTrigger]]
    inbound: list[AnatomyKey]
    views: list[list[Any]]
    grants: list[list[Any]]
    policies: list[list[str]]


def read_standing(run: Execute, schema: str, name: str, leaves: list[str]) -> Standing:
    """Read what a partitioned table has now. Must be called inside a transaction."""
    relation = _Relation(*run(sql_catalog.TABLE, {"schema": schema, "name": name})[0])
    at: dict[str, object] = {"oid": relation.oid}
    indexes: dict[str, dict[str, str]] = {leaf: {} for leaf in leaves}
    keys: dict[str, dict[tuple[bool, bool], list[str]]] = {}
    for leaf, own, above, primary_above, primary in run(sql_catalog.LEAF_INDEXES, at):
        indexes.setdefault(leaf, {})[above] = own
        keys.setdefault(leaf, {})[primary_above, primary] = [above, own]
    for leaf, found in keys.items():
        # Up to PostgreSQL 15 a primary key and a unique constraint of the same columns may have been matched to each
        # other.
        if (True, False) in found:
            (key, unique), (other, primary_own) = found[True, False], found[False, True]
            indexes[leaf] |= {key: primary_own, other: unique}
    leaf_triggers: dict[str, list[AnatomyTrigger]] = {}
    for leaf, trigger, text, enabled in run(sql_catalog.LEAF_TRIGGERS, at):
        leaf_triggers.setdefault(leaf, []).append(AnatomyTrigger(trigger, text, enabled, None))
    return Standing(
        relation.comment,
        leaves,
        indexes,
        _triggers(run(sql_catalog.TRIGGERS, at)),
        leaf_triggers,
        _keys(run(sql_catalog.INBOUND, at)),
        _views(run(sql_catalog.VIEWS, at)),
        _lists(run(sql_catalog.GRANTS, at)),
        _lists(run(sql_catalog.POLICIES, at)),
    )


def anatomy_from(facts: dict[str, Any]) -> Anatomy:
    """Build an anatomy from what `as_json` wrote."""
    lists: dict[str, Any] = {
        "columns": AnatomyColumn,
        "indexes": AnatomyIndex,
        "outbound": AnatomyKey,
        "inbound": AnatomyKey,
        "triggers": AnatomyTrigger,
    }
    made = {name: [kind(**one) for one in facts[name]] for name, kind in lists.items()}
    identity = facts["identity"]
    return Anatomy(**{**facts, **made, "identity": None if identity is None else AnatomySequence(**identity)})


def own_names(name: str) -> tuple[str, str, str]:
    """Return the names of what a conversion adds to a table: the new key's index, the old key's index, the bound."""
    return fitted(name, KEY_SUFFIX), fitted(name, UNPARTITIONED_SUFFIX), fitted(name, BOUND_SUFFIX)


def read_anatomy(run: Execute, schema: str, name: str, time: str) -> tuple[Anatomy | None, list[Refusal]]:
    """Read the definition of a table, without what Wane added to it, and everything that prevents partitioning it.

    Each refusal comes with what to do about it; the anatomy is None if there is any.
    """
    found = run(sql_catalog.TABLE, {"schema": schema, "name": name})
    if not found:
        return None, [(f"there is no table {schema}.{name}", "")]
    relation = _Relation(*found[0])
    if relation.kind == "p":
        return None, [(f"{schema}.{name} is partitioned already", RETIRE_ONLY)]
    if relation.kind != "r" or relation.is_partition:
        return None, [(f"{schema}.{name} is not a plain table", "only plain tables can be partitioned")]
    table = _PlainTable(run, relation, schema, name, time)
    refused = table.refusals()
    return (None, refused) if refused else (table.anatomy(), [])


class _PlainTable:
    """A table that is not partitioned, as the catalogs have it: what refusals and its anatomy both need."""

    def __init__(self, run: Execute, relation: _Relation, schema: str, name: str, time: str) -> None:
        self.run, self.relation, self.schema, self.name, self.time = run, relation, schema, name, time
        self.at = {"oid": relation.oid, "schema": schema, "name": name}
        self.ours = own_names(name)
        self.columns = _columns(run, self.at)
        self.indexes, self.refused_indexes = _indexes(run(sql_catalog.INDEXES, self.at), self.ours)
        self.key = next(([str(c) for c in one.columns] for one in self.indexes if one.primary), [])
        self.inbound = _keys(run(sql_catalog.INBOUND, self.at))
        self.triggers = run(sql_catalog.TRIGGERS, self.at)
        self.views = run(sql_catalog.VIEWS, self.at)
        self.identities = [column for column in self.columns if column.identity]

    def refusals(self) -> list[Refusal]:
        run, at = self.run, self.at
        refused = [
            *_refused_properties(self.relation),
            *self.refused_indexes,
            *_refused_constraints(run(sql_catalog.CONSTRAINTS, at), self.ours[2]),
            *_refused_key(self.columns, self.key, self.time, self.schema, self.name),
            *_refused_dependents(self.triggers, self.views, run(sql_catalog.OTHERS, at)),
        ]
        [(itself,)] = run(sql_catalog.QUALIFIED, {"schema": self.schema, "name": self.name})
        if any(one.table == itself and self.time in one.columns for one in self.inbound):
            refused.append(("the table refers to its own key with its time", "drop that foreign key first"))
        if len(self.identities) > 1:
            hint = "ALTER TABLE … ALTER COLUMN … DROP IDENTITY for all but one"
            refused.append(("more than one identity column", hint))
        return refused

    def anatomy(self) -> Anatomy:
        run, at, relation = self.run, self.at, self.relation
        return Anatomy(
            schema=self.schema,
            name=self.name,
            owner=relation.owner,
            comment=relation.comment,
            options=list(relation.options),
            toast_options=list(relation.toast_options),
            tablespace=relation.tablespace,
            replica_identity=relation.replica_identity,
            row_security=relation.row_security,
            force_row_security=relation.force_row_security,
            time=self.time,
            key=self.key,
            columns=self.columns,
            indexes=self.indexes,
            outbound=_outbound(run, at),
            inbound=self.inbound,
            triggers=_triggers(self.triggers),
            policies=_lists(run(sql_catalog.POLICIES, at)),
            grants=_lists(run(sql_catalog.GRANTS, at)),
            views=_views(self.views),
            identity=_sequence(run, self.identities[0]) if self.identities else None,
            details=[text for (text,) in run(sql_catalog.DETAILS, at)],
        )


def read_partitioned(run: Execute, schema: str, name: str, time: str) -> Anatomy:
    """Read what retiring needs to know of a table whose partitions the application makes: its key and its columns."""
    [(oid, *_)] = run(sql_catalog.TABLE, {"schema": schema, "name": name})
    at = {"oid": oid, "schema": schema, "name": name}
    key = next((list(columns) for _, _, primary, _, _, columns, *_ in run(sql_catalog.INDEXES, at) if primary), [])
    no: list[Any] = []
    return Anatomy(
        schema=schema,
        name=name,
        owner="",
        comment=None,
        options=no,
        toast_options=no,
        tablespace=None,
        replica_identity="d",
        row_security=False,
        force_row_security=False,
        time=time,
        key=key,
        columns=_columns(run, at),
        indexes=no,
        outbound=no,
        inbound=no,
        triggers=no,
        policies=no,
        grants=no,
        views=no,
        identity=None,
        details=no,
        by_application=True,
    )


def _columns(run: Execute, at: dict[str, Any]) -> list[AnatomyColumn]:
    return [
        AnatomyColumn(n, t, nn, i, g != "", s, list(o), q) for n, t, nn, i, g, s, o, q in run(sql_catalog.COLUMNS, at)
    ]


def _outbound(run: Execute, at: dict[str, Any]) -> list[AnatomyKey]:
    rows = run(sql_catalog.OUTBOUND, at)
    return [AnatomyKey(n, table, d, [], partitioned=False, comment=c) for n, d, own, table, c in rows if not own]


def _triggers(rows: list[tuple[Any, ...]]) -> list[AnatomyTrigger]:
    return [AnatomyTrigger(n, d, e, c) for n, d, e, c, _ in rows]


def _views(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [[view, text, list(options)] for view, _, text, options in rows]


def _lists(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(row) for row in rows]


def _keys(rows: list[tuple[Any, ...]]) -> list[AnatomyKey]:
    return [AnatomyKey(n, table, d, list(columns), split, c) for n, table, d, split, columns, _, c in rows]


def functions_with_conflicts(run: Execute, name: str) -> list[str]:
    """Return the functions that mention the table and ON CONFLICT."""
    return [str(text) for (text,) in run(sql_catalog.FUNCTIONS, {"name": name})]


def _indexes(rows: list[tuple[Any, ...]], ours: tuple[str, str, str]) -> tuple[list[AnatomyIndex], list[Refusal]]:
    indexes, refused = [], []
    for name, unique, primary, valid, _, columns, partial, tail, comment, con, kind, late, definition, about in rows:
        if name in ours:
            continue
        if kind == "x":
            refused.append((f"the exclusion constraint {con} cannot hold over partitions", "drop it first"))
        if primary and late:
            refused.append((f"the primary key {con} is deferrable", "make one that is not"))
        if not valid:
            refused.append(
                (f"the index {name} is invalid", f"build it again, or DROP INDEX CONCURRENTLY {quote(name)}")
            )
        if not tail.startswith("USING "):
            refused.append((f"the definition of the index {name} cannot be read", "drop it first"))
        indexes.append(
            AnatomyIndex(
                name, unique, primary, valid, list(columns), partial, tail, comment, con, kind, definition, about
            )
        )
    return indexes, refused


def _refused_properties(relation: _Relation) -> list[Refusal]:
    properties = (
        (
            relation.persistence != "p",
            "is not logged, and partitioned tables always are",
            "ALTER TABLE … SET LOGGED",
        ),
        (relation.is_typed, "is of a type", "ALTER TABLE … NOT OF"),
        (relation.inherits, "inherits, or others inherit from it", "end that first"),
        (
            relation.has_labels,
            "has security labels, which Wane does not carry over",
            "remove them, and set them again after",
        ),
        (
            relation.replica_identity == "i",
            "has an index as its replica identity",
            "ALTER TABLE … REPLICA IDENTITY DEFAULT or FULL",
        ),
    )
    return [(f"{relation.schema}.{relation.name} {what}", fix) for refused, what, fix in properties if refused]


def _refused_dependents(
    triggers: list[tuple[Any, ...]], views: list[tuple[Any, ...]], others: list[tuple[Any, ...]]
) -> list[Refusal]:
    drop = "drop it, and create it again after"
    return [
        *(
            (f"the trigger {trigger} reads transition tables row by row", "partitions cannot have such")
            for trigger, *_, transition in triggers
            if transition
        ),
        *((f"{view} reads the table and cannot be replaced", drop) for view, kind, *_ in views if kind != "v"),
        *((f"{other} depends on the table as it is", drop) for (other,) in others),
    ]


def _refused_constraints(rows: list[tuple[Any, ...]], bound: str) -> list[Refusal]:
    refused = []
    for name, kind, valid, no_inherit in rows:
        if not valid and name != bound:
            refused.append(
                (f"the constraint {name} is not validated", f"ALTER TABLE … VALIDATE CONSTRAINT {quote(name)}")
            )
        if kind == "c" and no_inherit:
            refused.append(
                (f"the constraint {name} is NO INHERIT", "partitions could not have it: make one that is not")
            )
    return refused


def _refused_key(columns: list[AnatomyColumn], key: list[str], time: str, schema: str, name: str) -> list[Refusal]:
    if not key:
        return [(f"{schema}.{name} has no primary key", "add one")]
    column = next((one for one in columns if one.name == time), None)
    if column is None:
        return [(f"{schema}.{name} has no column {time!r}", "correct `time` under [partition]")]
    if column.generated:
        return [(f"{time} is generated, and partitions cannot go by that", "choose another column")]
    if not column.not_null:
        return [
            (
                f"{time} can be NULL, and such a row has no month",
                f"ALTER TABLE … ALTER COLUMN {quote(time)} SET NOT NULL",
            )
        ]
    return []


def _sequence(run: Execute, column: AnatomyColumn) -> AnatomySequence:
    assert column.sequence is not None
    [(start, step, least, most, cache, cycle, comment)] = run(sql_catalog.SEQUENCE, {"sequence": column.sequence})
    grants = [list(row) for row in run(sql_catalog.SEQUENCE_GRANTS, {"sequence": column.sequence})]
    always = column.identity == "a"
    return AnatomySequence(
        column.name, always, column.sequence, start, step, least, most, cache, cycle, comment, grants
    )


def quote(name: str) -> str:
    return Dialect.quote(name)


def fitted(name: str, suffix: str) -> str:
    """Append a suffix to a name within the 63 bytes that PostgreSQL allows; a name that is too long is cut and gets a
    hash."""
    name_length = 63 - len(suffix.encode())
    encoded = name.encode()
    if len(encoded) <= name_length:
        return name + suffix
    mark = "~" + hashlib.sha256(encoded).hexdigest()[:8]
    return encoded[: name_length - len(mark)].decode(errors="ignore") + mark + suffix
