"""Listeners: what becomes of the events that the other rooms tell."""
