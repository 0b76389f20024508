"""Runs every scenario of `archive.oracle` on a Spark that runs elsewhere: `python -m archive.elsewhere FOLDER URL
LOCATIONS SERVER`.

FOLDER has `spark.toml`, which says where Spark runs. Many tasks evict, as they do for many rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from archive.cold import Cold, cold_keeper
from archive.object_server import ObjectServer
from archive.oracle import KINDS, Kind, live, race
from servers import PostgresDatabase, SqliteDatabase
from wane._archive.pipeline import evictors

SCENARIOS: dict[str, Callable[[Cold, Kind], None]] = {"live": partial(live, frames=True), "race": race}


def main(folder: str, url: str, locations: str, address: str) -> None:
    evictors.ROWS_EACH = 30
    spark = (Path(folder) / "spark.toml").read_text()
    scheme, _, path = url.partition(":///")
    database = SqliteDatabase(Path(path)) if scheme == "sqlite" else PostgresDatabase(url)
    for location, bucket in json.loads(locations).items():
        for name, kind in KINDS.items():
            for title, scenario in SCENARIOS.items():
                database.reset()
                kind.create(database)
                run = f"{location}-{name}-{title}"
                inside = Path(folder) / run
                inside.mkdir()
                server = ObjectServer(address) if bucket else None
                contract = kind.contract + spark
                with cold_keeper(database, inside, contract, server=server, url=f"{bucket}/{run}") as cold:
                    scenario(cold, kind)
                sys.stdout.write(f"{run}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
