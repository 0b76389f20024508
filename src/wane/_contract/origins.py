"""The file that declares each entry, so that a mistake between files is reported where it was made."""

from __future__ import annotations

from wane._contract.mistakes import Mistakes


class Origins:
    """The file of every named entry of every section; the first declaration counts."""

    def __init__(self, last: Mistakes) -> None:
        self.last = last
        self._files: dict[tuple[str, object], Mistakes] = {}

    def note(self, section: str, name: object, file: Mistakes) -> None:
        self._files[section, name] = file

    def has(self, section: str, name: object) -> bool:
        return (section, name) in self._files

    def of(self, section: str, name: object) -> Mistakes:
        """Return the mistakes of the file that declares an entry; those of the last file if none does."""
        return self._files.get((section, name), self.last)
