"""The data pipeline: rows past their hot window move, with proof, into an open cold archive. Spark does the reading and
the writing.

Nothing here is imported with `import wane`: Spark, Arrow and Delta Lake are loaded when the archive is first used.
"""
