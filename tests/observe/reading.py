"""Reading metrics as Prometheus does."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series(text: bytes | str) -> Series:
    """Return every sample by its name and labels."""
    text = text.decode() if isinstance(text, bytes) else text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
    assert len(found) == len(samples), "a series is reported twice"
    return found


def of(text: bytes | str, name: str) -> dict[tuple[str, ...], float]:
    """Return the series of one metric by their label values, in the order of the labels' names."""
    return {
        tuple(value for _, value in labels): number for (known, labels), number in series(text).items() if known == name
    }
