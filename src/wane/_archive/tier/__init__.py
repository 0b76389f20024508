"""The archive inside the database: rows that a rule moved to another schema expire, and come back."""
