"""A row as the archive stores it: the types of its columns, canonical texts, digests, and the statements that read
it."""
