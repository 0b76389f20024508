"""A fleet: many databases, each with its contract, archived by one process in one Spark application."""
