"""Measurements: each against a yardstick of the same run on the same machine, raw samples kept."""
