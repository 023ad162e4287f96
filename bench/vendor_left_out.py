"""Programs of the vendor, judged without what was learnt from them: ``bench/vendor_programs.py FILE --left-out``.

What is tabulated, and no formula, is a column of ``task_words.json``: a value for each generation. A record is
evidence of a value if its words change where the value does. For each record, values whose only evidence is the record
itself, or records with the same numbers in their network, are replaced by those of the generation that has most values
in common; then the record is compiled again. A rule that only repeats what one program showed is counted out by this.
Formulas in the code cannot be left out this way: random shapes around the records test what they say elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aneforge.chips import store
from aneforge.codegen.dialect import dialect_of, rate_of, written_generations

Record = dict[str, Any]
NOT_WORDS = ("table_evidence",)
"""Columns that no word of a task depends on."""


def nearest(generation: str) -> str:
    """The other generation with most values in common."""
    rows, names = _rows(), written_generations()
    place = names.index(generation)

    def shared(other: str) -> int:
        return sum(row["v"][place] == row["v"][names.index(other)] for row in rows)

    return max((name for name in names if name != generation), key=shared)


@contextmanager
def replaced(generation: str, keys: Sequence[str]) -> Iterator[None]:
    """The table with some values of a generation taken from its nearest neighbour."""
    names = written_generations()
    place, other = names.index(generation), names.index(nearest(generation))
    rows = [row for row in _rows() if row["key"] in keys]
    before = [row["v"][place] for row in rows]
    try:
        for row in rows:
            row["v"][place] = row["v"][other]
        _forget()
        yield
    finally:
        for row, value in zip(rows, before, strict=True):
            row["v"][place] = value
        _forget()


def evidence(records: Sequence[Record], score: Callable[[Record], Any]) -> dict[tuple[str, str], set[str]]:
    """For each value that differs from the neighbour's: the records whose words depend on it."""
    found: dict[tuple[str, str], set[str]] = {}
    for generation in sorted({record["generation"] for record in records}):
        own = [record for record in records if record["generation"] == generation]
        plain = {record["id"]: _outcome(score(record)) for record in own}
        place, other = (written_generations().index(name) for name in (generation, nearest(generation)))
        for row in _rows():
            if row["v"][place] == row["v"][other] or row["key"] in NOT_WORDS:
                continue
            with replaced(generation, [row["key"]]):
                changed = {record["id"] for record in own if _outcome(score(record)) != plain[record["id"]]}
            found[generation, row["key"]] = changed
    return found


def left_out(records: Sequence[Record], score: Callable[[Record], Any]) -> list[tuple[Any, Any, tuple[str, ...]]]:
    """Each record's score with all values, without what it alone shows, and the values that only it shows."""
    known = evidence(records, score)
    alike: dict[tuple[str, str], set[str]] = {}
    for record in records:
        alike.setdefault((record["generation"], numbers_of(record)), set()).add(record["id"])
    rows = []
    for record in records:
        group = alike[record["generation"], numbers_of(record)]
        keys = tuple(
            key
            for (generation, key), support in known.items()
            if generation == record["generation"] and record["id"] in support and support <= group
        )
        before = score(record)
        if not keys:
            rows.append((before, before, keys))
            continue
        with replaced(record["generation"], keys):
            rows.append((before, score(record), keys))
    return rows


def numbers_of(record: Record) -> str:
    """The numbers of a network: its shapes and sizes, whatever it does with them."""
    network = record["network"]
    return str(sorted((key, value) for key, value in network.items() if not isinstance(value, str)))


def table(rows: Sequence[tuple[Any, Any, tuple[str, ...]]], of: Callable[[Record], str]) -> Iterator[str]:
    """How many records are exact with all values and without, and the share of words."""
    groups: dict[str, list[tuple[Any, Any, tuple[str, ...]]]] = {}
    for row in rows:
        groups.setdefault(of(row[0].record), []).append(row)
    for name in sorted(groups):
        group = groups[name]
        words = sum(before.words for before, _, _ in group)
        exact = sum(before.is_exact for before, _, _ in group)
        still = sum(after.is_exact for _, after, _ in group)
        share = sum(after.equal for _, after, _ in group) / words
        only = sum(bool(keys) for *_, keys in group)
        counts = f"{len(group):4} records {exact:4} exact {still:4} left out {share:7.1%} of words"
        yield f"{name:24} {counts}, {only} with values of their own"


def _rows() -> list[dict[str, Any]]:
    return store.load("task_words")["words"]


def _forget() -> None:
    dialect_of.cache_clear()
    rate_of.cache_clear()


def _outcome(entry: Any) -> tuple[int, str, tuple[str, ...]]:
    return entry.equal, entry.reason, entry.differences
