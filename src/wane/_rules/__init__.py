"""A rule bound to a live table, and the statements that it becomes."""
