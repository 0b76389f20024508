"""Wane inside other people's programs: each module here is loaded by one of them, and needs it installed."""
