"""Functions inside the database that run the engine's own statements, for one contract.

`words` turns a statement of the engine into PL/pgSQL, `taking` writes the function that takes rows by one rule, `watching` and `health` what
looks without taking, `surface` the functions that people call.
"""
