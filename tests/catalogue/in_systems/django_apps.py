"""Django's sessions, its admin's log, and apps with tables of tasks: `django_apps.py create|fill|clean|use URL`."""

from __future__ import annotations

import sys
from datetime import timedelta
from importlib import import_module
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import django
from django.conf import settings
from django.core.management import call_command

APPS = ["auth", "contenttypes", "sessions", "messages", "admin"]
OTHERS = ["django_celery_results", "django_celery_beat", "django_q", "django_tasks", "django_tasks_db"]


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
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in APPS), *OTHERS],
        USE_TZ=True,
        SECRET_KEY="proof",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        CELERY_RESULT_EXPIRES=timedelta(days=1),
        TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["default", "mail"]}},
        Q_CLUSTER={"name": "proof", "orm": "default", "timeout": 60, "retry": 90},
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
    fill_tasks()
    fill_queue()
    fill_beat()


def fill_tasks() -> None:
    from django.utils.timezone import now
    from django_tasks import TaskResultStatus
    from django_tasks_db.models import DBTaskResult

    import_module("django_work").plus.enqueue(1, 2)
    [first] = DBTaskResult.objects.all()
    for n in range(120):
        status = [*TaskResultStatus][n % len(TaskResultStatus)]
        ended = now() - timedelta(hours=6 * n, minutes=5) if status in ("SUCCESSFUL", "FAILED") else None
        first.pk, first.status, first.finished_at = uuid4(), status, ended
        first.queue_name = ("default", "mail")[n % 3 == 0]
        first.save(force_insert=True)


def fill_queue() -> None:
    from django.utils.timezone import now
    from django_q.brokers import get_broker
    from django_q.models import Schedule, Task
    from django_q.monitor import save_task
    from django_q.tasks import async_task, schedule

    for n in range(120):
        at = now() - timedelta(hours=6 * n, minutes=5)
        package: dict[str, object] = {
            "id": uuid4().hex,
            "name": f"t{n}",
            "func": "operator.add",
            "args": (1,),
            "kwargs": {},
        }
        package |= {"started": at, "stopped": at, "success": n % 3 > 0, "result": n, "sync": True, "group": None}
        save_task(package, get_broker())
    assert Task.objects.count() == 120
    async_task("operator.add", 1, 2)
    schedule("operator.add", 1, 2, schedule_type=Schedule.DAILY)


def fill_beat() -> None:
    from django.utils.timezone import now
    from django_celery_beat.models import ClockedSchedule, IntervalSchedule, PeriodicTask

    often = IntervalSchedule.objects.create(every=5, period=IntervalSchedule.MINUTES)
    for n in range(60):
        at = now() - timedelta(days=n, minutes=5)
        if n % 5 == 0:
            task = PeriodicTask.objects.create(name=f"p{n}", task="x", interval=often, enabled=n % 2 > 0)
        else:
            clocked = ClockedSchedule.objects.create(clocked_time=at)
            task = PeriodicTask.objects.create(
                name=f"c{n}", task="x", clocked=clocked, one_off=True, enabled=n % 4 == 0
            )
        PeriodicTask.objects.filter(pk=task.pk).update(date_changed=at)
        ClockedSchedule.objects.create(clocked_time=at - timedelta(hours=1))


def clean() -> None:
    from celery import Celery
    from django.contrib.admin.models import LogEntry
    from django.utils.timezone import now
    from django_celery_beat.models import ClockedSchedule, PeriodicTask
    from django_celery_results.backends import DatabaseBackend
    from django_q.models import Failure, Success

    call_command("clearsessions")
    LogEntry.objects.filter(action_time__lt=now() - timedelta(days=30)).delete()
    app = Celery("proof")
    app.conf.result_expires = timedelta(days=1)
    DatabaseBackend(app=app).cleanup()
    days = ["--min-age-days", "7", "--failed-min-age-days", "10"]
    call_command("prune_db_task_results", "--queue-name", "*", *days, verbosity=0)
    Success.objects.filter(stopped__lt=now() - timedelta(days=8)).delete()
    Failure.objects.filter(stopped__lt=now() - timedelta(days=12)).delete()
    month = now() - timedelta(days=30)
    PeriodicTask.objects.filter(one_off=True, enabled=False, date_changed__lt=month).delete()
    ClockedSchedule.objects.filter(clocked_time__lt=month, periodictask=None).delete()


def use() -> None:
    from django.contrib.sessions.backends.db import SessionStore
    from django_celery_beat.models import PeriodicTask
    from django_q.brokers import get_broker
    from django_q.models import OrmQ
    from django_tasks_db.models import DBTaskResult

    call_command("migrate", "--check", verbosity=0)
    session = SessionStore()
    session["answer"] = 42
    session.create()
    assert SessionStore(session.session_key)["answer"] == 42
    call_command("db_worker", "--batch", "--queue-name", "*", verbosity=0)
    assert DBTaskResult.objects.filter(status="READY").count() == 0
    assert "c4" in {one.name for one in PeriodicTask.objects.enabled()}
    broker = get_broker()
    [(acknowledgement, _)] = broker.dequeue()
    broker.acknowledge(acknowledgement)
    assert OrmQ.objects.count() == 0


def main(verb: str, url: str) -> None:
    configure(url)
    if verb == "create":
        call_command("migrate", verbosity=0)
    else:
        {"fill": fill, "clean": clean, "use": use}[verb]()


if __name__ == "__main__":
    main(*sys.argv[1:])
