"""Which file says what, so that a mistake which shows only between files is told where it was made."""

from __future__ import annotations

from wane.contract.pieces import Mistakes


class Origins:
    """The file of every named entry of every section, by the entry that came first."""

    def __init__(self, last: Mistakes) -> None:
        self.last = last
        self._files: dict[tuple[str, object], Mistakes] = {}

    def note(self, section: str, name: object, file: Mistakes) -> None:
        self._files[section, name] = file

    def has(self, section: str, name: object) -> bool:
        return (section, name) in self._files

    def of(self, section: str, name: object) -> Mistakes:
        """The mistakes of that file; those of the last file for what nobody says."""
        return self._files.get((section, name), self.last)
