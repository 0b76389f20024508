"""Integrations of Wane with other programs: each module here is loaded by one of them, and needs it installed."""
