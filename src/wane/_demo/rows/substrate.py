"""Events with their readers, jobs, dead letters, command runs, logs, and the staging schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wane._demo.rows import DAY, HOUR, MINUTE, Load, World, load
from wane._demo.traps import trap

DOMAINS = ("unit", "workflow", "search", "system")
TYPES = ("created", "updated", "published", "retired")
READERS = ("indexer", "notifier", "auditor", "projector")
ROUTES = ("unit-to-search", "workflow-to-mail", "system-to-audit")
KINDS = ("embed_unit", "render_page", "send_digest", "sync_vectors")
COMMANDS = ("dot-unit-publish", "dot-unit-retire", "dot-reindex")


def substrate(world: World) -> Iterator[Load]:
    yield from _events(world)
    yield _pending(world)
    yield from _routes(world)
    yield from _jobs(world)
    yield _commands(world)
    yield from _logs(world)
    yield from _in_place(world)
    yield from _staging(world)


def _events(world: World) -> Iterator[Load]:
    luck = world.luck("event_outbox")
    events: list[tuple[Any, ...]] = []
    reads: list[tuple[Any, ...]] = []

    def event(stream: str, created: int) -> None:
        number, unit = len(events) + 1, f"unit-{luck.randrange(20_000)}"
        subject = ("iu_unit", unit) if luck.random() < 0.7 else (None, None)
        correlation = f"{luck.getrandbits(64):016x}" if luck.random() < 0.4 else None
        kind = luck.choice(DOMAINS), luck.choice(TYPES)
        payload = f'{{"unit": "{unit}", "version": {luck.randrange(40)}}}'
        events.append((number, *kind, stream, *subject, correlation, "app", payload, world.native(created)))
        readers = luck.sample(READERS, luck.choice((0, 1, 1, 2)))
        reads.extend((number, reader, world.native(created + luck.randrange(HOUR))) for reader in readers)

    for time in world.times(luck, world.count(0.19), days=150):
        event(f"stream-{luck.randrange(300)}", time)
    for stream in trap("future-event").values():
        event(stream, world.now + 30 * DAY)
    for stream in trap("epoch-event").values():
        event(stream, 0)
    for stream in trap("event-boundary").values():
        event(stream, world.ago(90 * DAY))
    columns = "id event_domain event_type event_stream event_subject_table event_subject_ref correlation_id actor payload created_at"
    yield load("event_outbox", columns, events)
    yield load("event_read", "event_id reader read_at", reads)


def _pending(world: World) -> Load:
    luck = world.luck("event_pending")
    rows: list[tuple[Any, ...]] = []
    for time in world.times(luck, world.count(0.006), days=20):
        drained = time + luck.randrange(10 * MINUTE)
        times = world.native(time), world.native(drained if drained < world.now else None)
        rows.append((luck.choice(DOMAINS), luck.choice(TYPES), f"stream-{luck.randrange(300)}", "{}", *times))
    old = world.native(world.ago(100 * DAY))
    rows += [("unit", "created", stream, "{}", old, None) for stream in trap("undrained").values()]
    return load("event_pending", "event_domain event_type event_stream payload created_at drained_at", rows)


def _routes(world: World) -> Iterator[Load]:
    luck = world.luck("iu_route_dead_letter")
    routes = [(route, route.partition("-")[0], "published", route.rpartition("-")[2]) for route in ROUTES]
    yield load("iu_sql_event_route", "route_code event_domain event_type target", routes)
    workers = [(f"route-worker-{n}", luck.randrange(1, 1000), world.native(world.ago(n))) for n in range(6)]
    yield load("iu_route_worker_cursor", "worker last_event_id updated_at", workers)

    rows: list[tuple[Any, ...]] = []
    for failed in world.times(luck, world.count(0.002), days=700):
        resolved = failed + luck.randrange(20 * DAY)
        done = resolved < world.now and luck.random() < 0.9
        rows.append(_letter(world, luck.choice(ROUTES), "timeout", failed, resolved if done else None))
    old = world.ago(730 * DAY)
    rows += [_letter(world, ROUTES[0], error, old, None) for error in trap("unresolved-route").values()]
    columns = "route_code event_id payload error attempts first_failed_at last_failed_at resolved_at resolved_by"
    yield load("iu_route_dead_letter", columns, [(row[0], 1, "{}", *row[1:]) for row in rows])


def _letter(world: World, refers_to: str | int, error: str, failed: int, resolved: int | None) -> tuple[Any, ...]:
    times = (world.native(time) for time in (failed, failed + HOUR, resolved))
    return refers_to, error, 5, *times, None if resolved is None else "operator"


def _jobs(world: World) -> Iterator[Load]:
    luck = world.luck("job_queue")
    jobs: list[tuple[Any, ...]] = []
    letters: list[tuple[Any, ...]] = []

    def job(key: str, status: str, enqueued: int, finished: int | None) -> int:
        number, started = len(jobs) + 1, None if status == "queued" else enqueued + 1
        worker = f"worker-{luck.randrange(12)}" if status == "running" else None
        times = map(world.native, (enqueued, started, finished))
        jobs.append((number, luck.choice(KINDS), key, status, 1, f'{{"n": {number}}}', worker, *times))
        return number

    for number, enqueued in enumerate(world.times(luck, world.count(0.13), days=130)):
        key, finished = f"job-{number:07}", enqueued + luck.randrange(20 * MINUTE)
        if finished > world.now:
            job(key, luck.choice(("queued", "running")), enqueued, None)
        elif luck.random() < 0.01:
            failed = job(key, "failed", enqueued, None)
            letters.append(_letter(world, failed, "worker lost", enqueued, None))
        elif enqueued > world.ago(45 * DAY):
            job(key, luck.choice(("succeeded",) * 9 + ("cancelled",)), enqueued, finished)
        else:
            done = job(key, "cleaned", enqueued, finished)
            if luck.random() < 0.004:
                letters.append(_letter(world, done, "first attempt timed out", enqueued, finished))

    for number in range(world.count(0.0004)):
        failed = world.ago(luck.randrange(200, 600) * DAY)
        referred = job(f"kept-{number:05}", "cleaned", failed, failed + HOUR)  # only its dead letter still refers to it
        letters.append(_letter(world, referred, "worker lost", failed, failed + DAY))

    old, recent = world.ago(730 * DAY), world.ago(60 * DAY)
    for key, error in zip(trap("needed-by-dead-letter").values(), trap("unresolved-job").values(), strict=True):
        letters.append(_letter(world, job(key, "cleaned", old, old + HOUR), error, old, None))
    for key in trap("failed-job").values():
        job(key, "failed", old, old + HOUR)
    for key in trap("forgotten-job").values():
        job(key, "queued", old, None)
    for key in trap("unfinished-success").values():
        job(key, "succeeded", old, None)
    for key in trap("cleaned-but-audited").values():
        job(key, "cleaned", recent, recent + HOUR)
    columns = "id kind dedupe_key status attempts payload locked_by enqueued_at started_at finished_at"
    yield load("job_queue", columns, jobs)
    columns = "job_id error attempts first_failed_at last_failed_at resolved_at resolved_by"
    yield load("job_dead_letter", columns, letters)


def _commands(world: World) -> Load:
    luck = world.luck("dot_iu_command_run")
    rows: list[tuple[Any, ...]] = []

    def run(command: str, status: str, started: int, finished: int | None) -> None:
        code = {"succeeded": 0, "failed": 1}.get(status)
        rows.append((command, "{}", "operator", status, code, world.native(started), world.native(finished)))

    for started in world.times(luck, world.count(0.014), days=140):
        [status] = luck.choices(("succeeded", "failed"), (95, 5))
        run(luck.choice(COMMANDS), status, started, started + luck.randrange(1, 60))
    for command in trap("running-command").values():
        run(command, "running", world.ago(200 * DAY), None)
    for command in trap("command-boundary").values():
        run(command, "succeeded", world.ago(91 * DAY), world.ago(90 * DAY))
    return load("dot_iu_command_run", "command arguments requested_by status exit_code started_at finished_at", rows)


def _logs(world: World) -> Iterator[Load]:
    luck = world.luck("logs")
    log = [
        (luck.randrange(1, 1000), luck.choice(KINDS), "instantiated", world.native(time))
        for time in world.times(luck, world.count(0.02), days=500)
    ]
    yield load("iu_auto_instantiate_event_log", "event_id template outcome created_at", log)

    law: list[tuple[Any, ...]] = [
        (f"unit-{luck.randrange(20_000)}", luck.choice(TYPES), "app", world.native(time))
        for time in world.times(luck, world.count(0.012), days=900)
    ]
    law += [(unit, "enacted", "app", world.native(world.ago(3650 * DAY))) for unit in trap("old-law").values()]
    yield load("iu_lifecycle_log", "unit_ref transition actor created_at", law)

    points = [
        (f"unit-{number}", f"point-{number}", f"{luck.getrandbits(64):016x}", world.native(time))
        for number, time in enumerate(world.times(luck, world.count(0.006), days=400))
    ]
    yield load("iu_vector_sync_point", "unit_ref point_id content_sha synced_at", points)


def _in_place(world: World) -> Iterator[Load]:
    beats = [(f"worker-{n}", "worker", world.native(world.ago(n))) for n in range(12)]
    beats += [("scheduler-0", "scheduler", world.native(world.ago(3 * DAY)))]
    yield load("queue_heartbeat", "worker role beat_at", beats)
    leases = [(name, f"{name}@host-1", 40 + n, world.native(world.now + MINUTE)) for n, name in enumerate(READERS)]
    yield load("dot_iu_runtime_lease", "executor holder fence expires_at", leases)


def _staging(world: World) -> Iterator[Load]:
    luck = world.luck("iu_staging_record")
    statuses = ("promoted", "rejected", "staged", "validating")
    records: list[tuple[Any, ...]] = []
    for time in world.times(luck, world.count(0.006), days=60):
        [status] = luck.choices(statuses, (80, 5, 10, 5))
        records.append((len(records) + 1, luck.choice(("upload", "crawler", "api")), status, world.native(time)))
    for source in trap("foreign-staging").values():
        records.append((len(records) + 1, source, "promoted", world.native(world.ago(400 * DAY))))
    yield load("iu_core.iu_staging_record", "id source status created_at", records)
    payloads = [(record[0], part, "{}") for record in records for part in range(luck.choice((1, 1, 2)))]
    yield load("iu_core.iu_staging_payload", "record_id part payload", payloads)
