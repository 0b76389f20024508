"""Celery's SQLAlchemy result backend: `celery_backend.py create|fill|clean|use URL`, run where Celery is installed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from celery import Celery, states
from celery.backends.database import DatabaseBackend
from celery.backends.database.models import Task, TaskSet


def backend(url: str) -> DatabaseBackend:
    scheme = "postgresql+psycopg" if url.startswith("postgresql") else "sqlite"
    app = Celery("proof", backend=f"db+{scheme}{url[url.index(':') :]}")
    app.conf.result_expires = timedelta(days=1)
    return app.backend


def fill(store: DatabaseBackend) -> None:
    for n in range(200):
        state = (states.SUCCESS, states.FAILURE, states.REVOKED, states.STARTED)[n % 4]
        store.store_result(str(uuid4()), ValueError("no") if state == states.FAILURE else n, state)
    for n in range(20):
        store._save_group(str(uuid4()), [n])
    now = datetime.now(UTC).replace(tzinfo=None)
    session = store.ResultSession()
    for model, minutes in ((Task, 11), (TaskSet, 150)):
        for n, row in enumerate(session.query(model).order_by(model.id)):
            row.date_done = None if n % 17 == 16 else now - timedelta(minutes=minutes * n + 5)
    session.commit()


def use(store: DatabaseBackend) -> None:
    task = str(uuid4())
    store.store_result(task, {"answer": 42}, states.SUCCESS)
    assert store.get_result(task) == {"answer": 42}


def main(verb: str, url: str) -> None:
    store = backend(url)
    if verb == "create":
        store.ResultSession().close()
    elif verb == "clean":
        store.cleanup()
    else:
        {"fill": fill, "use": use}[verb](store)


if __name__ == "__main__":
    main(*sys.argv[1:])
