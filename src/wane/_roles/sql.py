"""Roles on PostgreSQL: what each may do, compared with what it may do already, as statements.

Rights are derived from the contract, table by table and where it is possible column by column. A right that a role was
given directly on Wane's own tables, on the archive or on the contract's tables, and that nothing here needs, is
revoked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wane._contract.model import Contract, Mark, ToArchive
from wane._contract.names import TableName
from wane._contract.settings import RoleSettings
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.schema import PRESSURE_FUNCTION, PRESSURE_VIEW, Schema, TableInfo
from wane._db.statement import Dialect, Execute, Types
from wane._roles.model import RoleStatement
from wane._rules.excuses import excused_tables
from wane._rules.selection import Selection, bind_contract, follower_paths, locked_paths

_MAINTAIN_SINCE = 170000
"""From this version on a role can be allowed to lock a table without being allowed to change it."""

Privilege = tuple[str, tuple[str, ...]]
"""A privilege, and the columns it is limited to; without any, it is on the whole table."""
_SELECT: Privilege = ("SELECT", ())
_INSERT: Privilege = ("INSERT", ())
_UPDATE: Privilege = ("UPDATE", ())
_DELETE: Privilege = ("DELETE", ())
_ALL = (_SELECT, _INSERT, _UPDATE, _DELETE)
_ADMIN: dict[str, tuple[Privilege, ...]] = {
    "migration": (_SELECT,),
    "audit": (_SELECT, _INSERT, ("UPDATE", ("counts", "row_count", "batches", "seconds"))),
    "hold": (_SELECT, _INSERT, ("UPDATE", ("released_at", "released_by"))),
    "flag": (_SELECT, _INSERT, _UPDATE),
    "lease": (_SELECT, _INSERT, _UPDATE),
    "schedule": (_SELECT, _INSERT, _UPDATE),
    "contract": (_SELECT, _INSERT, _UPDATE),
    "token": (_SELECT, _INSERT, ("UPDATE", ("revoked_at",))),
}
"""On Wane's own tables; the others are for sweeps to fill and to empty. No role deletes from the audit trail."""
_APPLICATION: dict[str, tuple[Privilege, ...]] = {
    "migration": (_SELECT,),
    "audit": (_SELECT, _INSERT),
    "hold": (_SELECT,),
}
"""What pruning inline needs besides the application's own tables: holds are obeyed, and what leaves is recorded."""

MEMBERSHIP = """
SELECT current_user, pg_has_role(current_user, oid, 'USAGE'), pg_has_role(current_user, oid, 'MEMBER')
FROM pg_catalog.pg_roles WHERE rolname = %(role)s
"""
_RELATIONS = """
SELECT namespace.nspname::text, class.relname::text, class.relkind::text
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND (namespace.nspname = %(own)s OR namespace.nspname = %(archive)s OR class.relname = %(pressure)s)
ORDER BY 1, 2
"""
_ROLES = "SELECT rolname::text, rolsuper, rolcanlogin FROM pg_catalog.pg_roles WHERE rolname = ANY (%(roles)s::text[])"
_SCHEMAS = "SELECT nspname::text FROM pg_catalog.pg_namespace WHERE nspname = ANY (%(schemas)s::text[])"
_HAS_SCHEMA = "SELECT has_schema_privilege(%(role)s::name, %(schema)s, %(privilege)s)"
_HAS_TABLE = """
SELECT has_table_privilege(%(role)s::name, class.oid, %(privilege)s)
FROM pg_catalog.pg_class AS class JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relname = %(table)s
"""
_HAS_COLUMN = """
SELECT has_column_privilege(%(role)s::name, class.oid, %(column)s, %(privilege)s)
FROM pg_catalog.pg_class AS class JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relname = %(table)s
"""
_HAS_DEFAULT = """
SELECT EXISTS (
  SELECT FROM pg_catalog.pg_default_acl AS defaults
  CROSS JOIN LATERAL aclexplode(defaults.defaclacl) AS entry
  JOIN pg_catalog.pg_roles AS grantee ON grantee.oid = entry.grantee
  WHERE defaults.defaclnamespace = to_regnamespace(quote_ident(%(schema)s)) AND defaults.defaclobjtype = 'r'
    AND defaults.defaclrole = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)
    AND grantee.rolname = %(role)s AND entry.privilege_type = 'SELECT')
"""
# Rights that were given directly: grantee 0 is PUBLIC.
_GIVEN = """
SELECT coalesce(grantee.rolname::text, ''), namespace.nspname::text, class.relname::text, entry.privilege_type
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
CROSS JOIN LATERAL aclexplode(class.relacl) AS entry
LEFT JOIN pg_catalog.pg_roles AS grantee ON grantee.oid = entry.grantee
WHERE class.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND (entry.grantee = 0 OR grantee.rolname = ANY (%(roles)s::text[]))
  AND entry.grantee <> class.relowner
  AND (namespace.nspname, class.relname) IN (SELECT * FROM unnest(%(schemas)s::text[], %(tables)s::text[]))
ORDER BY 2, 3, 1, 4
"""
# A view's function reads with the rights of the role that queries the view, unless the function specifies otherwise.
_PRESSURE = f"""
SELECT function.oid::regprocedure::text, function.prosecdef,
       NOT EXISTS (SELECT FROM aclexplode(coalesce(function.proacl, acldefault('f', function.proowner))) WHERE grantee = 0),
       has_function_privilege(%(admin)s::name, function.oid, 'EXECUTE'),
       has_function_privilege(%(reader)s::name, function.oid, 'EXECUTE')
FROM pg_catalog.pg_proc AS function
WHERE function.pronamespace = to_regnamespace(%(own)s) AND function.proname = '{PRESSURE_FUNCTION}'
"""
_VERSION = "SELECT current_setting('server_version_num')::int"


@dataclass(frozen=True, slots=True)
class _Right:
    """The right of a role to do something with a table."""

    role: str
    schema: str
    table: str
    privilege: Privilege


class RolePlanner:
    """Derives the statements, through a function that executes queries."""

    def __init__(self, run: Execute, contract: Contract, schema: Schema, types: Types) -> None:
        self._run = run
        self._settings: RoleSettings = contract.roles
        self._schema = schema
        self._contract = contract
        self._selections, _ = bind_contract(contract, schema, types)
        self._named = [self._settings.admin, self._settings.reader]
        self._named += [self._settings.application] if self._settings.application else []

    def plan(self) -> list[RoleStatement]:
        """Return every statement in order, those that change nothing included."""
        archive = self._settings.archive_schema
        found = self._run(_RELATIONS, {"own": OWN_SCHEMA, "archive": archive, "pressure": PRESSURE_VIEW})
        relations = [(schema, name) for schema, name, _ in found]
        self._views = {(schema, name) for schema, name, kind in found if kind in ("v", "m")}
        self._there = {name for name, *_ in self._run(_ROLES, {"roles": self._named})}
        rights = [*self._admin_rights(relations), *self._reader_rights(relations), *self._application_rights(relations)]
        return [
            *self._create(),
            *self._schemas(rights),
            *(self._grant(*each) for each in self._together(rights)),
            self._default(),
            *self._pressure(),
            *self._excess(rights, relations),
        ]

    def notes(self) -> list[str]:
        """Report what no statement here can take care of."""
        notes = []
        for name, superuser, login in self._run(_ROLES, {"roles": self._named}):
            if superuser:
                notes.append(f"{name} is a superuser: nothing is refused to it")
            elif login and name != self._settings.application:
                notes.append(f"{name} can log in; better give it to people's own roles: GRANT {_quote(name)} TO …")
        for table in {one.table.qualified: one.table for one in self._selections}.values():
            if table.row_security:
                notes.append(
                    f"{table.schema}.{table.name} has row security: the role that sweeps it also needs BYPASSRLS"
                )
            if table.delete_triggers:
                notes.append(f"{table.schema}.{table.name} has triggers, and what they do needs rights of its own")
        return notes

    # What each role needs

    def _admin_rights(self, relations: Sequence[tuple[str, str]]) -> list[_Right]:
        admin = self._settings.admin
        rights = [
            _Right(admin, OWN_SCHEMA, name, privilege)
            for schema, name in relations
            if schema == OWN_SCHEMA
            for privilege in ((_SELECT,) if (schema, name) in self._views else _ADMIN.get(name, _ALL))
        ]
        for selection in self._selections:
            rights += [_Right(admin, *table.qualified, privilege) for table, privilege in self._swept(selection)]
        for one in excused_tables(self._contract, self._schema):
            if one.info is not None:  # An excuse is checked by counting.
                rights.append(_Right(admin, *one.info.qualified, _SELECT))
        outbox = self._contract.events.outbox
        if outbox is not None:
            name = TableName.parse(outbox.table)
            table = self._schema.find(name.schema, name.name)
            if table is not None:  # Events are written in the transaction that deletes.
                rights.append(_Right(admin, *table.qualified, _INSERT))
        return list(dict.fromkeys(rights))

    def _swept(self, selection: Selection) -> Iterable[tuple[TableInfo, Privilege]]:
        yield selection.table, _SELECT
        if isinstance(selection.rule.action, Mark):
            assert selection.state is not None
            yield selection.table, ("UPDATE", (selection.state.name,))
        else:
            yield selection.table, _DELETE
            # Rows are locked before they leave, and a role that may update one column may lock a row.
            yield selection.table, ("UPDATE", (selection.key[0].name,))
        for path in follower_paths(selection):
            table = path[-1].reference.table
            yield table, _SELECT
            yield table, _DELETE
            if isinstance(selection.rule.action, ToArchive) or path in locked_paths(selection):
                # Followers are locked while they are compared with their copies, or checked again.
                yield table, ("UPDATE", (path[-1].reference.columns[0].name,))
        closed = list(selection.guards)
        for reference, in_child in selection.lookups:
            yield reference.table, _SELECT
            # Rows that hold times or windows are locked, so that those do not change.
            theirs = reference.columns if in_child else reference.to
            yield reference.table, ("UPDATE", (theirs[0].name,))
            closed += [reference] if in_child else []
        for guard in closed:
            yield guard.table, _SELECT
            if not guard.enforced:
                # Without a foreign key the table is locked while rows leave that it may refer to.
                [(version,)] = self._run(_VERSION, {})
                yield guard.table, ("MAINTAIN" if version >= _MAINTAIN_SINCE else "UPDATE", ())

    def _reader_rights(self, relations: Sequence[tuple[str, str]]) -> list[_Right]:
        wanted = [(s, n) for s, n in relations if s == self._settings.archive_schema or n == PRESSURE_VIEW]
        return [_Right(self._settings.reader, schema, name, _SELECT) for schema, name in wanted]

    def _application_rights(self, relations: Sequence[tuple[str, str]]) -> list[_Right]:
        role = self._settings.application
        if role is None:
            return []
        own = {name for schema, name in relations if schema == OWN_SCHEMA}
        return [
            _Right(role, OWN_SCHEMA, name, privilege)
            for name, privileges in _APPLICATION.items()
            if name in own
            for privilege in privileges
        ]

    # Statements

    def _create(self) -> list[RoleStatement]:
        whys = ["may sweep", "may read the archive", "the application's own role"]
        return [
            RoleStatement(f"CREATE ROLE {_quote(role)} NOLOGIN", f"{role} {why}", done=role in self._there)
            for role, why in zip(self._named, whys, strict=False)
        ]

    def _schemas(self, rights: Sequence[_Right]) -> list[RoleStatement]:
        archive = self._settings.archive_schema
        there = {name for (name,) in self._run(_SCHEMAS, {"schemas": [archive]})}
        made = [RoleStatement(f"CREATE SCHEMA {_quote(archive)}", "archived tables lie here", done=archive in there)]
        needed = {(right.role, right.schema): "USAGE" for right in rights}
        needed[self._settings.reader, archive] = "USAGE"
        needed[self._settings.admin, archive] = "USAGE, CREATE"
        for (role, schema), privileges in sorted(needed.items()):
            done = role in self._there and (schema != archive or archive in there)
            done = done and all(
                self._run(_HAS_SCHEMA, {"role": role, "schema": schema, "privilege": privilege})[0][0]
                for privilege in privileges.split(", ")
            )
            text = f"GRANT {privileges} ON SCHEMA {_quote(schema)} TO {_quote(role)}"
            made.append(RoleStatement(text, f"{role} reaches {schema}", done=done))
        return made

    def _together(self, rights: Sequence[_Right]) -> Iterable[tuple[str, str, str, list[Privilege]]]:
        grouped: dict[tuple[str, str, str], list[Privilege]] = defaultdict(list)
        for right in rights:
            grouped[right.role, right.schema, right.table].append(right.privilege)
        for (role, schema, table), privileges in grouped.items():
            # A role that may update all columns needs no single ones.
            whole = _UPDATE in privileges
            yield role, schema, table, [one for one in privileges if not (whole and one[0] == "UPDATE" and one[1])]

    def _grant(self, role: str, schema: str, table: str, privileges: list[Privilege]) -> RoleStatement:
        text = f"GRANT {', '.join(_written(one) for one in privileges)} ON TABLE {_quote(schema)}.{_quote(table)} TO {_quote(role)}"
        done = role in self._there and all(self._has(role, schema, table, one) for one in privileges)
        return RoleStatement(text, f"{role} uses {schema}.{table}", done=done)

    def _has(self, role: str, schema: str, table: str, privilege: Privilege) -> bool:
        kind, columns = privilege
        named: dict[str, object] = {"role": role, "schema": schema, "table": table, "privilege": kind}
        if not columns:
            return bool(self._run(_HAS_TABLE, named)[0][0])
        return all(self._run(_HAS_COLUMN, {**named, "column": column})[0][0] for column in columns)

    def _default(self) -> RoleStatement:
        archive, reader = self._settings.archive_schema, self._settings.reader
        done = reader in self._there and bool(self._run(_HAS_DEFAULT, {"schema": archive, "role": reader})[0][0])
        text = f"ALTER DEFAULT PRIVILEGES IN SCHEMA {_quote(archive)} GRANT SELECT ON TABLES TO {_quote(reader)}"
        return RoleStatement(text, "what is archived from now on can be read too", done=done)

    def _pressure(self) -> list[RoleStatement]:
        """Return the statements for the function behind the pressure view.

        It counts with its owner's rights, and only those two roles may call it.
        """
        admin, reader = self._settings.admin, self._settings.reader
        there = {admin, reader} <= self._there
        known = {"admin": admin if there else "current_user", "reader": reader if there else "current_user"}
        text = (
            _PRESSURE
            if there
            else _PRESSURE.replace("%(admin)s::name", "current_user").replace("%(reader)s::name", "current_user")
        )
        statements = []
        for name, definer, closed, *may in self._run(text, {**known, "own": OWN_SCHEMA}):
            why = "the pressure view counts rows that its readers may not read"
            statements += [
                RoleStatement(f"ALTER FUNCTION {name} SECURITY DEFINER", why, done=definer),
                RoleStatement(
                    f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC", "and no other role calls it", done=closed
                ),
                RoleStatement(
                    f"GRANT EXECUTE ON FUNCTION {name} TO {_quote(admin)}, {_quote(reader)}",
                    "these two do",
                    done=there and closed and all(may),
                ),
            ]
        return statements

    def _excess(self, rights: Sequence[_Right], relations: Sequence[tuple[str, str]]) -> list[RoleStatement]:
        wanted = {
            (right.role, right.schema, right.table, right.privilege[0]) for right in rights if not right.privilege[1]
        }
        swept = {selection.table.qualified for selection in self._selections}
        tables = sorted({*relations, *swept})
        given = self._run(
            _GIVEN,
            {"roles": self._named, "schemas": [schema for schema, _ in tables], "tables": [name for _, name in tables]},
        )
        statements = []
        for role, schema, table, privilege in given:
            ours = schema in (OWN_SCHEMA, self._settings.archive_schema)
            # What the application, or PUBLIC, may do with the application's tables is not decided here.
            if (role, schema, table, privilege) in wanted or (role in ("", self._settings.application) and not ours):
                continue
            whom = _quote(role) if role else "PUBLIC"
            text = f"REVOKE {privilege} ON TABLE {_quote(schema)}.{_quote(table)} FROM {whom}"
            statements.append(RoleStatement(text, f"{role or 'PUBLIC'} needs no {privilege} there", done=False))
        return statements


def _written(privilege: Privilege) -> str:
    kind, columns = privilege
    return f"{kind} ({', '.join(_quote(column) for column in columns)})" if columns else kind


def _quote(name: str) -> str:
    return Dialect.quote(name)
