"""The changelog is merged by hand from several sources, and stays one list of entries under each heading."""

from __future__ import annotations

import re
from collections import Counter

from docs.sessions import ROOT

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_no_list_of_the_changelog_has_a_blank_line_inside() -> None:
    lines = CHANGELOG.splitlines()
    inside = re.compile(r"- |  \S")
    assert [
        number
        for number in range(2, len(lines))
        if not lines[number - 1] and inside.match(lines[number - 2]) and inside.match(lines[number])
    ] == []


def test_no_sentence_of_the_changelog_is_there_twice() -> None:
    _, *sections = re.split(r"^##+ .*$", CHANGELOG, flags=re.MULTILINE)
    entries = [entry for section in sections for entry in re.split(r"^- ", section, flags=re.MULTILINE)]
    sentences = Counter(
        sentence for entry in entries for sentence in re.split(r"(?<=\.)\s+", " ".join(entry.split())) if sentence
    )
    assert [sentence for sentence, times in sentences.items() if times > 1] == []
