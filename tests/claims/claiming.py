"""One of several processes that claim the same tasks."""

from __future__ import annotations

from together import begin
from wane.claims import Claim, WorkClaims


def main(url: str, name: str, tasks: int) -> list[tuple[str, int]]:
    """Return the tasks that this one completed, and the fence of each."""
    done = []
    with WorkClaims.open(url) as claims:
        claims.get("warm")
        begin()
        for number in range(tasks):
            answer = claims.claim(f"t{number:03}", name, 600)
            if isinstance(answer, Claim):
                claims.complete(answer)
                done.append((answer.task_id, answer.fence))
    return done
