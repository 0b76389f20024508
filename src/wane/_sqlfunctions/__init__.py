"""Functions inside the database that run the engine's own statements, for one contract.

`words` turns a statement of the engine into PL/pgSQL, `take` writes the function that takes rows by one rule,
`pressure` and `health` the read-only functions, `surface` the functions that users call.
"""

from wane._sqlfunctions.installation import SqlSurface, install, installed_fingerprint, sql_surface, uninstall

__all__ = ["SqlSurface", "install", "installed_fingerprint", "sql_surface", "uninstall"]
