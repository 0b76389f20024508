"""The Django app: it registers the checks of the contract."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class WaneConfig(AppConfig):
    """`wane.contrib.django` in INSTALLED_APPS. It has no models, and so no migrations."""

    name = "wane.contrib.django"
    label = "wane"
    verbose_name = "Wane"

    def ready(self) -> None:
        """Register the checks: of the file always, of the database where Django checks databases."""
        from wane.contrib.django._checks import check_contract, check_database

        checks.register(check_contract, "wane")
        checks.register(check_database, checks.Tags.database, "wane")
