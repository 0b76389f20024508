"""The contract's roles: what each may do, and the grants for it (PostgreSQL)."""
