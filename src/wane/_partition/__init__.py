"""Monthly partitions (PostgreSQL): convert a table that has outgrown row-wise pruning while the application runs, and
convert it back."""
