"""Listeners for emitted events, and readings of the database: metrics, logs, health, growth, space."""
