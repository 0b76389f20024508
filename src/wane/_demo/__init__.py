"""The demonstration: a database of a busy application, with traps planted in it, to show Wane on."""
