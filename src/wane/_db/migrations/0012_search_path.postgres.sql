-- A function that runs inside others' transactions finds nothing by a bare name that others may have created.
ALTER FUNCTION wane.message_wakes() SET search_path = pg_catalog, pg_temp;
