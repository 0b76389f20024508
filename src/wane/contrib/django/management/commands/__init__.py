"""Commands of `manage.py`: Django finds each by its module's name."""
