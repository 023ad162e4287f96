"""The pages of the formats: how every op of Core ML, PyTorch and ONNX comes in."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

__all__ = ["coreml", "onnx", "torch"]

ROOT = Path(__file__).resolve().parents[2]

_HOW_READ = """*Native form*: the op becomes one op of the graph language, or a weight in its stored form.
*Equivalent*: it becomes a few such ops that mean the same. *Host*: the host computes it in float32, between regions of
the engine (`aneforge partition`). *Refused*: reading stops with one error. Ops on integers, and ops whose positions
are known only while a program runs, go to the host in any case."""


def _op_table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    counts = Counter(how for _, how, _ in rows)
    told = ", ".join(f"{counts[how]} {how}" for how in ("native form", "equivalent", "host", "refused"))
    lines = [f"{len(rows)} ops: {told}.", "", _HOW_READ, "", "| op | how | note |", "| --- | --- | --- |"]
    return lines + [f"| `{name}` | {how} | {why} |" for name, how, why in rows]


def coreml() -> str:
    from aneforge.formats.coreml import coverage

    head = "These are the ops of the published 187-op matrix, and what coremltools writes beside them."
    return "\n".join(["# Core ML: what is read", "", head, "", *_op_table(coverage())]) + "\n"


def torch() -> str:
    from aneforge.formats.pytorch.host import coverage

    head = "These are the core ATen ops, and other ops that have a rule in the reader."
    return "\n".join(["# PyTorch: what is read", "", head, "", *_op_table(coverage())]) + "\n"


def onnx() -> str:
    sys.path.insert(0, str(ROOT / "bench"))
    from onnx_coverage import coverage_page  # type: ignore[import-not-found]

    return coverage_page()
