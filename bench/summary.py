"""Write the table of all ratios into bench/README.md, from what the benchmarks have saved in bench/results.

.venv/bin/python -m bench.summary
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.measuring import ROOT

RESULTS = ROOT / "bench" / "results"
README = ROOT / "bench" / "README.md"
BEGIN, END = "<!-- summary -->\n", "<!-- end of summary -->\n"


@dataclass(frozen=True, slots=True)
class Line:
    """One ratio: where it is saved, and what it should be."""

    what: str
    file: str
    path: tuple[str, ...]
    goal: str


PRUNE = (
    ("batches of 1,000 / one DELETE", "wane / one_delete", "≥ 0.60", "≥ 0.85"),
    ("batches of 5 ms / one DELETE", "wane_adaptive / one_delete", "≥ 0.75", ""),
    ("/ copying and deleting by `IN (SELECT …)`", "wane / copy_then_delete", "≥ 3.5", "≥ 1.5"),
    ("guarded / one guarded DELETE", "wane_guarded / one_guarded_delete", "≥ 0.85", ""),
    ("with followers / the same DELETEs by hand", "wane_followed / one_followed_delete", "≥ 0.75", ""),
    ("longest transaction / one DELETE", "longest transaction, wane / one_delete", "", ""),
    ("last tenth of batches / first tenth", "last tenth of batches / first tenth", "≤ 1.1", "≤ 1.1"),
    ("write-ahead log per row / one DELETE", "WAL per row, wane / one_delete", "≤ 1.1", ""),
)
ARCHIVE = (
    ("CPU / a pyarrow script", "CPU, wane / pyarrow_script", "", ""),
    ("CPU / COPY or the shell, zstd", "CPU, wane / copy_and_zstd", "", ""),
    ("time / a pyarrow script", "time, wane / pyarrow_script", "≤ 1.6", "≤ 2.0"),
    ("time / Spark over JDBC", "time, wane / spark_jdbc", "≤ 0.7", ""),
    ("CPU / Spark over JDBC", "CPU, wane / spark_jdbc", "", ""),
)
COLD_ROWS = 30_000
OTHERWISE = ("pace", "p99", "p95", "longest", "tenth", "write-ahead")
"""Ratios of something else than CPU time, whatever a run measured."""
NOT_MEASURED = "not measured"
STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}
SYSTEMS = (
    "django-sessions, SQLite",
    "django-sessions, PostgreSQL",
    "Celery, SQLite",
    "Celery, PostgreSQL",
    "River, PostgreSQL",
    "Oban, PostgreSQL",
    "Solid Queue, PostgreSQL",
    "procrastinate, PostgreSQL",
    "Prefect, PostgreSQL",
)


def lines() -> Iterator[Line]:
    for number, (store, named) in enumerate(STORES.items()):
        file = f"prune-{store}"
        for what, key, *goals in PRUNE[: None if store == "postgres" else -1]:  # One store has a log that is counted.
            yield Line(f"{named} prune, {what}", file, ("ratios", key), goals[number])
        for what, shape in (("", "plain"), (", with followers", "followed")):
            pace = f"{named}, default pace on an idle database{what} / `--fast`"
            yield Line(pace, file, ("idle", shape, "ratio"), "≥ 0.5")
    for store, named in STORES.items():
        beside = f"{named}, application's p99 beside a sweep / alone"
        yield Line(beside, f"prune-{store}", ("foreground", "ratio"), "≤ 1.15")
        for shape in ("table", "scope"):
            yield Line(f"{named}, cap per {shape} / one DELETE", "caps", (store, shape, "ratio"), "≥ 0.4")
        for what in ("pressure, again", "health, again"):
            yield Line(f"{named}, {what} / one scan", "health", (store, "ratio_to_scan", what), "≤ 0.03")
        for what in ("overview", "tables", "table", "metrics"):
            yield Line(f"{named}, console's {what}, p95 / one scan", "web", (store, "p95_to_scan", what), "")
        yield Line(
            f"{named}, console's memory, last / first tenth of requests", "web", (store, "memory_ratio"), "≤ 1.1"
        )
        for what in ("cover", "plan"):
            yield Line(f"{named}, {what} of 100 tables / one scan", "check_plan", (store, "ratio_to_scan", what), "")
    for store, named in STORES.items():
        archive = f"{named} archive, {load('archive').get(store, {}).get('rows', 0):,} rows"
        for what, key, *goals in ARCHIVE[: None if store == "postgres" else -2]:  # Spark has no driver for the other.
            yield Line(f"{archive}, {what}", "archive", (store, "ratios", key), goals[list(STORES).index(store)])
    for store, named in STORES.items():
        larger = load("archive").get(store, {}).get("scale", {})
        what = f"{named} archive, {larger.get('factor', 0)} times the rows, {larger.get('whole', {}).get('rows', 0):,}"
        for measure in ("time", "CPU"):
            yield Line(f"{what}: {measure}", "archive", (store, "scale", measure), "")
        for process in ("driver", "task"):
            yield Line(f"{what}: memory of a {process}", "archive", (store, "scale", "memory", process), "≤ 1.1")
        cold = f"{named} archive, the first run in a process, {COLD_ROWS:,} rows: seconds"
        yield Line(cold, "archive", (store, "cold", "seconds"), "")
        by_key = f"{named} archive, files that a query by key reads of 1,000"
        yield Line(by_key, "archive", (store, "by_key", "one", "files"), "1")
    for step in ("copy", "evict"):
        scaling = f"{step}, 1 worker / 2, 1 / 4"
        yield Line(f"archive on a cluster, {scaling}", "archive", ("postgres", "cluster", scaling), "")
    for kind, named in (("separate", "an archive each"), ("shared", "one shared archive")):
        members = load("fleet").get(kind, {}).get("members", 0)
        for run in ("first", "idle", "second"):
            what = f"fleet of {members:,} databases, {named}, {run} pass: CPU seconds of a member"
            yield Line(what, "fleet", (kind, run, "cpu_seconds_a_member"), "")
    for name in SYSTEMS:
        yield Line(f"tables of {name}, `--fast` / its own cleaner", "systems", (name, "ratio"), "≥ 0.75")
    for name in ("procrastinate, PostgreSQL", "Prefect, PostgreSQL"):
        pace = f"tables of {name}, default pace on an idle database / `--fast`"
        yield Line(pace, "systems", (name, "default_pace_ratio"), "≥ 0.5")
    yield Line("/ knockerlite's pruning", "peers", ("knockerlite", "wane / knockerlite"), "≥ 1.2")
    yield Line("/ procrastinate's `delete_old_jobs`", "peers", ("procrastinate", "wane / procrastinate"), "≥ 0.75")
    longest = "longest transaction, wane / procrastinate"
    yield Line("the same, longest transaction", "peers", ("procrastinate", longest), "≤ 0.05")
    yield Line("`wane --help` / python, CPU", "start", ("ratios", "help"), "≤ 14")
    yield Line("`wane plan` / python, CPU", "start", ("ratios", "plan"), "≤ 26.7")
    yield Line("`wane --help` / python, by the clock", "start", ("clock_ratios", "help"), "")
    yield Line("`wane plan` / python, by the clock", "start", ("clock_ratios", "plan"), "")


QUEUE_GOALS = {
    "postgres": {
        ("drain", "procrastinate", 1_000_000, 16): "≥ 1.7 (2.5 by CPU)",
        ("drain", "pgqueuer", 1_000_000, 16): "≥ 1.7 (2.5 by CPU)",
        ("enqueue", "pgqueuer", 1_000_000, 1): "≥ 1.1",
        ("enqueue", "pgqueuer", 1_000_000, 4): "≥ 1.1",
        ("enqueue", "pgqueuer", 1_000_000, 16): "≥ 1.5",
    },
    "sqlite": {
        ("drain", "honker 0.5.0", 1_000, 1): "≥ 2.5",
        ("drain", "honker 0.5.0", 1_000_000, 1): "≥ 1,000",
        ("enqueue", "honker 0.5.0", 1_000, 1): "≥ 1.0",
    },
}
"""By what is measured, beside whom, with how many pending, by how many workers."""


def queue_rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield messages per second, and CPU where it was measured, beside each peer; those with a goal also if not
    measured."""
    for store, named in STORES.items():
        saved, goals = load(f"queue-{store}"), QUEUE_GOALS[store]
        found = {
            (line["what"], peer, line["pending"], line["workers"]): (
                ratio,
                line.get("wane_over_by_cpu", {}).get(peer),
                line.get("measured_on", saved["measured_on"]),
            )
            for line in saved.get("lines", [])
            for peer, ratio in line.get("wane_over", {}).items()
        }
        for what, peer, pending, workers in {**found, **goals}:
            ratio, by_cpu, measured_on = found.get((what, peer, pending, workers), (NOT_MEASURED, None, ""))
            shown = "reserve + ack" if what == "drain" else what
            equal = ", neither waits for the disk" if peer.startswith("honker") else ""
            many = "worker" if workers == 1 else "workers"
            case = f"{named} queue, {shown} / {peer}{equal}, {pending:,} pending, {workers} {many}"
            goal = goals.get((what, peer, pending, workers), "")
            yield case, f"{ratio}{'' if by_cpu is None else f' ({by_cpu} by CPU)'}", goal, measured_on


def load(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def value(saved: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        saved = saved.get(key) if isinstance(saved, dict) else None
    return saved


def rows() -> Iterator[tuple[str, str, str, str]]:
    for line in lines():
        saved = load(line.file)
        ratio = value(saved, line.path)
        if ratio is None:
            yield line.what, NOT_MEASURED, line.goal, ""
        else:
            of = saved.get("ratios_of") or saved.get("seconds_of") or ""
            by_cpu = " by CPU" if of == "CPU time" and not any(word in line.what for word in OTHERWISE) else ""
            # What was measured by itself has its own date.
            dates = (value(saved, (*line.path[:depth], "measured_on")) for depth in (2, 1, 0))
            shown = " and ".join(map(str, ratio)) if isinstance(ratio, list) else f"{ratio}{by_cpu}"
            yield line.what, shown, line.goal, next(filter(None, dates))
    yield from queue_rows()


def main() -> None:
    table = ["| what | ratio | goal | measured |", "|---|--:|--:|---|"]
    table += [f"| {' | '.join(row)} |" for row in rows()]
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(before + BEGIN + "\n".join(table) + "\n" + END + after)


if __name__ == "__main__":
    main()
