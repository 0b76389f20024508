"""The queries that `partition.anatomy` reads PostgreSQL's catalogs with. PostgreSQL 14 to 18."""

from __future__ import annotations

QUALIFIED = "SELECT format('%%I.%%I', %(schema)s::text, %(name)s::text)"

TABLE = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, c.relispartition,
       c.reloftype <> 0, c.relrowsecurity, c.relforcerowsecurity, c.relreplident::text, pg_get_userbyid(c.relowner)::text,
       obj_description(c.oid, 'pg_class'), coalesce(c.reloptions, '{}'), coalesce(toast.reloptions, '{}'),
       (SELECT spcname::text FROM pg_tablespace WHERE oid = c.reltablespace),
       EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid OR inhparent = c.oid),
       EXISTS (SELECT FROM pg_seclabel WHERE classoid = 'pg_class'::regclass AND objoid = c.oid)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_class AS toast ON toast.oid = c.reltoastrelid
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
"""
COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text, a.attgenerated::text,
       coalesce((to_jsonb(a) ->> 'attstattarget')::int, -1), coalesce(a.attoptions, '{}'),
       pg_get_serial_sequence(format('%%I.%%I', %(schema)s::text, %(name)s::text), a.attname)
FROM pg_attribute AS a WHERE a.attrelid = %(oid)s::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
INDEXES = """
SELECT i.relname::text, x.indisunique, x.indisprimary, x.indisvalid AND x.indisready, x.indisreplident,
       (SELECT array_agg(a.attname::text ORDER BY k.ordinality)
        FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k(attnum, ordinality)
        LEFT JOIN pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = k.attnum
        WHERE k.ordinality <= x.indnkeyatts),
       x.indpred IS NOT NULL,
       substr(pg_get_indexdef(i.oid), length(format('CREATE %%sINDEX %%I ON %%I.%%I ',
         CASE WHEN x.indisunique THEN 'UNIQUE ' ELSE '' END, i.relname, %(schema)s::text, %(name)s::text)) + 1),
       obj_description(i.oid, 'pg_class'), con.conname::text, con.contype::text, con.condeferrable,
       CASE WHEN con.oid IS NOT NULL THEN pg_get_constraintdef(con.oid) END,
       obj_description(con.oid, 'pg_constraint')
FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid
LEFT JOIN pg_constraint AS con ON con.conindid = i.oid AND con.conrelid = x.indrelid AND con.contype IN ('p', 'u', 'x')
WHERE x.indrelid = %(oid)s::oid ORDER BY i.relname
"""
CONSTRAINTS = """
SELECT conname::text, contype::text, convalidated, connoinherit FROM pg_constraint
WHERE conrelid = %(oid)s::oid AND contype IN ('c', 'f') ORDER BY conname
"""
OUTBOUND = """
SELECT k.conname::text, pg_get_constraintdef(k.oid), k.confrelid = k.conrelid,
       format('%%I.%%I', n.nspname, c.relname), obj_description(k.oid, 'pg_constraint')
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.confrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE k.conrelid = %(oid)s::oid AND k.contype = 'f' AND k.conparentid = 0 ORDER BY k.conname
"""
INBOUND = """
SELECT k.conname::text, format('%%I.%%I', n.nspname, c.relname), pg_get_constraintdef(k.oid), c.relkind = 'p',
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u(attnum, o)
             JOIN pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = u.attnum ORDER BY o),
       k.convalidated, obj_description(k.oid, 'pg_constraint')
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE k.confrelid = %(oid)s::oid AND k.contype = 'f' AND k.conparentid = 0 ORDER BY 2, 1
"""
TRIGGERS = """
SELECT t.tgname::text, pg_get_triggerdef(t.oid), t.tgenabled::text, obj_description(t.oid, 'pg_trigger'),
       t.tgtype & 1 = 1 AND (t.tgoldtable IS NOT NULL OR t.tgnewtable IS NOT NULL)
FROM pg_trigger AS t WHERE t.tgrelid = %(oid)s::oid AND NOT t.tgisinternal ORDER BY t.tgname
"""
POLICIES = """
SELECT quote_ident(polname), format('CREATE POLICY %%I ON {table} AS %%s FOR %%s TO %%s%%s%%s', polname,
         CASE WHEN polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
         CASE polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
         CASE WHEN polroles = '{0}' THEN 'PUBLIC'
              ELSE (SELECT string_agg(quote_ident(pg_get_userbyid(r)), ', ') FROM unnest(polroles) AS r) END,
         CASE WHEN polqual IS NULL THEN '' ELSE ' USING (' || pg_get_expr(polqual, polrelid) || ')' END,
         CASE WHEN polwithcheck IS NULL THEN '' ELSE ' WITH CHECK (' || pg_get_expr(polwithcheck, polrelid) || ')' END)
FROM pg_policy WHERE polrelid = %(oid)s::oid ORDER BY polname
"""
GRANTS = """
SELECT '' AS columns, CASE WHEN e.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END,
       e.privilege_type, e.is_grantable
FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS e WHERE c.oid = %(oid)s::oid AND e.grantee <> c.relowner
UNION ALL
SELECT quote_ident(a.attname), CASE WHEN e.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END,
       e.privilege_type, e.is_grantable
FROM pg_attribute AS a CROSS JOIN LATERAL aclexplode(a.attacl) AS e
WHERE a.attrelid = %(oid)s::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 2, 3
"""
VIEWS = """
SELECT DISTINCT format('%%I.%%I', n.nspname, v.relname), v.relkind::text, pg_get_viewdef(v.oid), coalesce(v.reloptions, '{}')
FROM pg_depend AS d JOIN pg_rewrite AS r ON r.oid = d.objid JOIN pg_class AS v ON v.oid = r.ev_class
JOIN pg_namespace AS n ON n.oid = v.relnamespace
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s::oid
  AND v.oid <> %(oid)s::oid ORDER BY 1
"""
# Anything else that depends on the table would keep referring to the old table.
OTHERS = """
SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend AS d
WHERE d.deptype = 'n' AND d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s::oid
  AND d.classid NOT IN ('pg_rewrite'::regclass, 'pg_constraint'::regclass, 'pg_class'::regclass, 'pg_trigger'::regclass,
                        'pg_attrdef'::regclass, 'pg_statistic_ext'::regclass)
  AND NOT (d.classid = 'pg_policy'::regclass AND EXISTS (SELECT FROM pg_policy WHERE oid = d.objid AND polrelid = %(oid)s::oid))
UNION
SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_depend AS d
WHERE d.deptype = 'n' AND d.refclassid = 'pg_type'::regclass
  AND d.refobjid IN (SELECT unnest(ARRAY[t.oid, t.typarray]) FROM pg_type AS t WHERE t.typrelid = %(oid)s::oid)
UNION
SELECT 'publication ' || p.pubname FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid
WHERE r.prrelid = %(oid)s::oid
UNION
SELECT 'rule ' || rulename FROM pg_rewrite WHERE ev_class = %(oid)s::oid AND rulename <> '_RETURN'
"""
# Comments on the table's parts, and statistics over several columns: partitions have none of these, so the last of
# them would not either.
DETAILS = """
SELECT format('COMMENT ON COLUMN %%I.%%I.%%I IS %%L', %(schema)s::text, %(name)s::text, attname, col_description(attrelid, attnum))
FROM pg_attribute WHERE attrelid = %(oid)s::oid AND attnum > 0 AND NOT attisdropped AND col_description(attrelid, attnum) IS NOT NULL
UNION ALL
SELECT format('COMMENT ON CONSTRAINT %%I ON %%I.%%I IS %%L', conname, %(schema)s::text, %(name)s::text, obj_description(oid, 'pg_constraint'))
FROM pg_constraint WHERE conrelid = %(oid)s::oid AND contype <> 'p' AND obj_description(oid, 'pg_constraint') IS NOT NULL
UNION ALL
SELECT format('COMMENT ON INDEX %%I.%%I IS %%L', %(schema)s::text, c.relname, obj_description(c.oid, 'pg_class'))
FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indexrelid
WHERE x.indrelid = %(oid)s::oid AND obj_description(c.oid, 'pg_class') IS NOT NULL
UNION ALL
SELECT pg_get_statisticsobjdef(oid) FROM pg_statistic_ext WHERE stxrelid = %(oid)s::oid
ORDER BY 1
"""
SEQUENCE = """
SELECT s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle, obj_description(c.oid, 'pg_class')
FROM pg_sequence AS s JOIN pg_class AS c ON c.oid = s.seqrelid WHERE s.seqrelid = %(sequence)s::regclass
"""
SEQUENCE_GRANTS = """
SELECT CASE WHEN e.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END, e.privilege_type, e.is_grantable
FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS e
WHERE c.oid = %(sequence)s::regclass AND e.grantee <> c.relowner ORDER BY 1, 2
"""
LEAF_INDEXES = """
SELECT leaf.relname::text, coalesce(own_con.conname, own.relname)::text, coalesce(con.conname, above.relname)::text,
       x.indisprimary, y.indisprimary
FROM pg_inherits AS i JOIN pg_index AS x ON x.indexrelid = i.inhparent JOIN pg_index AS y ON y.indexrelid = i.inhrelid
JOIN pg_class AS above ON above.oid = i.inhparent JOIN pg_class AS own ON own.oid = i.inhrelid
JOIN pg_class AS leaf ON leaf.oid = y.indrelid
LEFT JOIN pg_constraint AS con ON con.conindid = above.oid AND con.contype IN ('p', 'u')
LEFT JOIN pg_constraint AS own_con ON own_con.conindid = own.oid AND own_con.contype IN ('p', 'u')
WHERE x.indrelid = %(oid)s::oid
"""
LEAF_TRIGGERS = """
SELECT leaf.relname::text, t.tgname::text, pg_get_triggerdef(t.oid), t.tgenabled::text
FROM pg_trigger AS t JOIN pg_inherits AS i ON i.inhrelid = t.tgrelid JOIN pg_class AS leaf ON leaf.oid = t.tgrelid
WHERE i.inhparent = %(oid)s::oid AND t.tgparentid <> 0 AND NOT EXISTS (
  SELECT FROM pg_constraint AS k WHERE k.oid = t.tgconstraint AND k.contype = 'f') ORDER BY 1, 2
"""
# Functions are text: what they do is known only when they run. Those that mention the table and ON CONFLICT are worth
# checking.
FUNCTIONS = """
SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND n.nspname <> 'wane'
  AND p.prosrc ~* 'on\\s+conflict' AND strpos(lower(p.prosrc), lower(%(name)s)) > 0 ORDER BY 1
"""
