"""How pytest-xdist hands out tests: its own groups, at a cost that does not grow with what is already done."""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class Groups(LoadGroupScheduling):  # type: ignore[misc]
    """Forgets a group when its last test is done: after each test, xdist counts what is pending in every group it knows."""

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        test = self.registered_collections[node][item_index]
        groups, group = self.assigned_work[node], self._split_scope(test)
        groups[group][test] = True
        if all(groups[group].values()):
            del groups[group]
        self._reschedule(node)
