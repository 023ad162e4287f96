"""Weight encodings: which of them a family streams as they are, and which it folds to dense fp16."""

from __future__ import annotations

from functools import cache
from typing import Any

from aneforge.errors import UnknownNameError, nearest
from aneforge.targets import store
from aneforge.targets.evidence import Fact, fact
from aneforge.targets.families import Family, as_family

__all__ = ["encoding_names", "native_streams", "stream_fact"]

# Short names of the seed API for the encodings of compression.json.
SHORT = {"int4": "int4_lut", "int8": "int8_affine", "sparse": "sparse", "blockwise": "blockwise"}


def native_streams(family: int | str) -> frozenset[str]:
    """The encodings that keep their size on the way to the engine: int4, int8, sparse, blockwise."""
    return _streams()[as_family(family)]


@cache
def _streams() -> dict[Family, frozenset[str]]:
    rows = store.load("compression")["native_streams_by_family5"]
    table = {Family[row["family"]]: frozenset(row["v"]) for row in rows}
    return {family: table.get(family, frozenset()) for family in Family}


def encoding_names() -> tuple[str, ...]:
    return tuple(SHORT)


def stream_fact(encoding: str, family: int | str) -> Fact[Any]:
    """``stream`` or ``fold`` for one encoding on one family, with its evidence."""
    member = as_family(family)
    document = store.load("compression")
    row = next((record for record in document["encodings"] if record["name"] == SHORT.get(encoding, encoding)), None)
    if row is None:
        near = ", ".join(nearest(encoding, SHORT)) or ", ".join(SHORT)
        raise UnknownNameError(f"{encoding!r}: not a weight encoding; nearest: {near}")
    source = document["evidence"][row["e"]][0]
    record = {
        "v": row["stream"].get(member.name),
        "src": source,
        "conf": row["stream_conf"].get(member.name),
        "conflict": row.get("conflict"),
    }
    return fact(record, about=f"{encoding} weights on {member.name}")
