"""Weight encodings that a chip expands before it runs the op."""

from __future__ import annotations

from typing import Any

from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.findings import PlacementFinding
from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import CHIP, Structure

_STREAMS = {"int8": "int8", "int8_affine": "int8", "blockwise": "blockwise"}
FOLD_READS = tuple(f"stream:{encoding}" for encoding in sorted(set(_STREAMS.values())))


def fold_finding(query: Query, chip: Facts, route: str) -> PlacementFinding | None:
    """A finding where the question is about the encoding (no shapes given) and the chip folds it to fp16.

    With shapes the op itself is native whatever the weight's form: expansion happens when the program is built and
    costs bandwidth, not the engine (compression.json, G07).
    """
    encoding = query.weights.get("encoding")
    if encoding not in _STREAMS or route != "conversion" or query.shapes is not None or query.is_chain:
        return None
    if chip.get("tier") is None or query.values:
        return None
    known: Any = chip.fact(f"stream:{_STREAMS[encoding]}")
    if known.value != "fold":
        return None
    message = f"{query.op}: {encoding} weights are expanded to fp16 when a program for {CHIP} is built"
    hint = "use an encoding that streams there (aneforge.chips.native_streams)"
    return PlacementFinding(
        "weight-fold", message, known, hint, stage="code generation", route=route,
        effect="decompose", limit=Structure("a form that streams"), extent="fold",
    )  # fmt: skip
