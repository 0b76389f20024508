"""Django's sessions, its admin's log and django-celery-results: `django_apps.py create|fill|clean|use URL`."""

from __future__ import annotations

import sys
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings
from django.core.management import call_command

APPS = ["auth", "contenttypes", "sessions", "messages", "admin"]


def configure(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        store: dict[str, object] = {"ENGINE": "django.db.backends.sqlite3", "NAME": "/" + parts.path.lstrip("/")}
    else:
        options = parse_qs(parts.query)
        store = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path.lstrip("/"),
            "USER": parts.username or "",
            "HOST": options["host"][0] if "host" in options else parts.hostname,
            "PORT": options["port"][0] if "port" in options else parts.port,
        }
    settings.configure(
        DATABASES={"default": store},
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in APPS), "django_celery_results"],
        USE_TZ=True,
        SECRET_KEY="proof",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        CELERY_RESULT_EXPIRES=timedelta(days=1),
    )
    django.setup()


def fill() -> None:
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.auth.models import User
    from django.contrib.contenttypes.models import ContentType
    from django.contrib.sessions.backends.db import SessionStore
    from django.contrib.sessions.models import Session
    from django.utils.timezone import now
    from django_celery_results.models import ChordCounter, GroupResult, TaskResult

    user = User.objects.create_user("proof")
    kind = ContentType.objects.get_for_model(User)
    for n in range(120):
        session = SessionStore()
        session["n"] = n
        session.create()
        Session.objects.filter(pk=session.session_key).update(expire_date=now() + timedelta(hours=n - 60, minutes=5))
        entry = LogEntry.objects.create(
            user=user, content_type=kind, object_id=str(n), object_repr="x", action_flag=CHANGE, change_message=""
        )
        LogEntry.objects.filter(pk=entry.pk).update(action_time=now() - timedelta(days=n, minutes=5))
        task = TaskResult.objects.create(task_id=f"t{n}", status=("SUCCESS", "FAILURE", "STARTED")[n % 3])
        TaskResult.objects.filter(pk=task.pk).update(date_done=now() - timedelta(minutes=25 * n + 5))
    for n in range(12):
        group = GroupResult.objects.create(group_id=f"g{n}", result="[]")
        GroupResult.objects.filter(pk=group.pk).update(date_done=now() - timedelta(hours=4 * n, minutes=5))
        ChordCounter.objects.create(group_id=f"c{n}", sub_tasks="[]", count=n)


def clean() -> None:
    from celery import Celery
    from django.contrib.admin.models import LogEntry
    from django.utils.timezone import now
    from django_celery_results.backends import DatabaseBackend

    call_command("clearsessions")
    LogEntry.objects.filter(action_time__lt=now() - timedelta(days=30)).delete()
    app = Celery("proof")
    app.conf.result_expires = timedelta(days=1)
    DatabaseBackend(app=app).cleanup()


def use() -> None:
    from django.contrib.sessions.backends.db import SessionStore

    call_command("migrate", "--check", verbosity=0)
    session = SessionStore()
    session["answer"] = 42
    session.create()
    assert SessionStore(session.session_key)["answer"] == 42


def main(verb: str, url: str) -> None:
    configure(url)
    if verb == "create":
        call_command("migrate", verbosity=0)
    else:
        {"fill": fill, "clean": clean, "use": use}[verb]()


if __name__ == "__main__":
    main(*sys.argv[1:])
