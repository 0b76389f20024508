"""A task that workers of django-tasks import."""

from __future__ import annotations

from django_tasks import task


@task()
def plus(one: int, other: int) -> int:
    return one + other
