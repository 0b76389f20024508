"""The demonstration: a database of a busy application, with traps planted in it, for Wane to be shown on."""
