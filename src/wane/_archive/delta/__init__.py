"""The archive's Delta Lake tables: folders and object stores, files, commits, and what the database records of them."""
