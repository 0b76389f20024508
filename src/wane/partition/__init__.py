"""Partitions by the month (PostgreSQL): a table that has outgrown row-wise pruning, converted while everybody works, and back."""
