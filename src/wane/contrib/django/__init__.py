"""Django: `wane.contrib.django` in INSTALLED_APPS adds `manage.py wane …` and checks of the contract.

    WANE = {"contract": BASE_DIR / "wane.toml", "database": "default"}

The database is the project's own: its address and password come from DATABASES. The app has no models, so migrations
never touch Wane's own tables; `manage.py wane migrate` creates them.
"""

from wane.contrib.django._settings import contract_path, database_url, open_keeper

__all__ = ["contract_path", "database_url", "open_keeper"]
