"""Where work runs: the Spark session, its executor, and how tasks in other processes reach the database."""
