"""Gathers and views: which engine moves the data, and in which number format."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.legalise.relabel import Relayer, Span
from aneforge.compiler.lower.builder import reject_string
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused

_BATCH, _WIDTH = 0, 4
_SPACE = (3, 4)


@pass_("gather-gate", 2, reads=["0x81d"], requires=["layers"], ensures=["mapped gathers"], only=["gather_nd"])
def gather_gate(module: Module, chip: Facts) -> int:
    """IsValidForH13: without a texture engine a gather fits the software envelope, or fixed indices become views."""
    texture = chip["0x81d"]
    walk = Relayer(module)
    for op in module.ops:
        if op.kind != "gather_nd" or (not texture and _in_envelope(op)):
            walk.keep(op)
        elif texture:
            op.labels["route"] = "texture"
            walk.changes += 1
            walk.keep(op)
        else:
            walk.replace(op, _by_views(walk, op))
    return walk.finish()


def _in_envelope(op: Op) -> bool:
    """Three gather axes, one image without depth, three index channels without width and depth (chapter 35)."""
    if len(op.operands) != 2 or len(op.attrs["axes"]) != 3:
        return False
    (n, d, *_), (_, index_d, index_c, _, index_w) = (operand.shape for operand in op.operands)
    return (n, d, index_d, index_c, index_w) == (1, 1, 1, 3, 1)


def _by_views(walk: Relayer, op: Op) -> Op:
    x, axes = op.operands[0], op.attrs["axes"]
    if len(op.operands) > 1 or len(axes) != 1 or axes[0] == _BATCH:
        what = "indices that arrive at run time" if len(op.operands) > 1 else f"axes {list(axes)}"
        raise Refused(
            op,
            f"a gather with {what} needs the texture engine, or three axes of one image with three index channels",
            reject_string("Gather", "Cannot decompose"),
        )
    extent = x.shape[axes[0]]
    runs = _runs([index % extent for index in op.attrs["indices"]])
    views = {run: walk.view(x, axes[0], *run, op.sources) for run in dict.fromkeys(runs)}
    return walk.joined([views[run] for run in runs], axes[0], op.sources)


def _runs(indices: Sequence[int]) -> list[Span]:
    """Runs of consecutive indices: where each starts and how long it is."""
    runs: list[Span] = []
    for index in indices:
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs


@pass_(
    "crop-slices",
    2,
    reads=["slice_saturates"],
    requires=[
        "layers",
        "mapped resizes",
        "mapped gathers",
        "native strides",
        "native groups",
        "kernel modes",
        "sliced products",
        "kernel memory",
    ],
    ensures=["routed views"],
    only=["input_view"],
)
def crop_slices(module: Module, chip: Facts) -> int:
    """SliceNeedsCropMode: a height or width view that does not begin at zero takes the crop route.

    The trigger is the same on every family. On the width the route stores four fractional bits where the chip
    saturates (N18); everywhere else it stores fp16.
    """
    changes = 0
    for op in module.ops:
        if op.kind != "input_view" or op.attrs["dimension"] not in _SPACE:
            continue
        if op.attrs["offset"] == 0 and op.attrs["step"] > 0:
            continue
        hazard = op.attrs["dimension"] == _WIDTH and op.attrs["offset"] != 0 and chip["slice_saturates"]
        op.labels |= {"route": "crop", "storage": "q4" if hazard else "fp16"}
        changes += 1
    return changes
