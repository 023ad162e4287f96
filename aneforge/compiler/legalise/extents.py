"""The final check of shapes: every axis within the chip's caps."""

from __future__ import annotations

from collections.abc import Iterator

from aneforge.anec.ir import Module, Op
from aneforge.anec.types.checks import AXES
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused, RefusedOps

_CAPS = ("limit:batch_extent", "max_tensor_depth", "limit:channel_extent", "max_tensor_height", "max_tensor_width")
_WIDE, _CONTRACTED = "limit:transpose_extent_offset_field", "limit:contraction_extent"


@pass_(
    "check-extents",
    2,
    reads=[*_CAPS, _WIDE, _CONTRACTED],
    requires=["layers", "floors", "native transposes", "mapped views"],
    ensures=["legal"],
    checks=True,
)
def check_extents(module: Module, chip: Facts) -> int:
    """Dimension legalisation: refuse an axis that exceeds the cap of the chip (rank five is what the language has).

    As in preflight (limits.json ``preflight_axis_rule``), a transpose and what it reads have the wide caps of the
    offset field; whatever else reads such a tensor has the narrow ones. A transpose that moves no element is a reshape
    by now and stays a transpose here.
    """
    narrow = tuple(chip[name] for name in _CAPS)
    wide = (chip[_WIDE],) * len(AXES)
    most = chip[_CONTRACTED]
    if _all_fit(module, [min(caps) for caps in zip(narrow, wide, [most] * len(AXES), strict=True)]):
        return 0
    sound: set[tuple[tuple[int, ...], bool]] = set()  # few shapes, seen again and again
    refused: list[Refused] = []
    for op in module.ops:
        if op.kind in ("const_in", "live_out"):
            # A kernel's outputs lie on N and are not a batch; a program's results are checked where they are made.
            continue
        turned = _turns(op)
        for tensor in _tensors(op, turned):
            if (tensor.shape, turned) not in sound:
                problem = _problem(op, tensor, wide if turned else narrow)
                if problem is None:
                    sound.add((tensor.shape, turned))
                else:
                    refused.append(problem)
        for extent in _contracted(op):
            if extent > most:
                reason = f"{op.name} has a contraction or output extent of {extent}; the limit is {most}"
                refused.append(Refused(op, "contraction-extent", reason, oversize=True))
    if refused:
        raise RefusedOps(refused)
    return 0


def _all_fit(module: Module, caps: list[int]) -> bool:
    """Whether every tensor is within every cap. A program has few types, so this is soon known, and mostly so."""
    types = {op.type for op in module.ops if op.kind != "const_in"}
    return all(extent <= cap for type_ in types if type_ for extent, cap in zip(type_.shape, caps, strict=True))


def _turns(op: Op) -> bool:
    """A transpose, or a reshape that only moves axes of one."""
    if op.kind == "reshape":
        before, after = ([extent for extent in shape if extent > 1] for shape in (op.operands[0].shape, op.shape))
        return before == after
    return op.kind == "transpose"


def _tensors(op: Op, turned: bool) -> Iterator[Op]:
    """The tensors that an op reads and gives. A result that only transposes read is checked with them, and an input's
    shape is checked with its readers."""
    for operand in op.operands:
        if operand.kind != "const_in":
            yield operand
    if op.kind != "live_in" and (turned or not op.users or not all(map(_turns, op.users))):
        yield op


def _problem(op: Op, tensor: Op, caps: tuple[int, ...]) -> Refused | None:
    for axis, extent, cap in zip(AXES, tensor.shape, caps, strict=True):
        if extent > cap:
            verb = "gives" if tensor is op else "reads"
            reason = f"{op.name} {verb} {list(tensor.shape)}: axis {axis} is {extent}; the limit is {cap}"
            return Refused(op, "extent", reason, oversize=True)
    return None


def _contracted(op: Op) -> Iterator[int]:
    """The contracted and the free extent of a product's right-hand side (gate rule contraction-extent)."""
    if op.kind == "matmul":
        yield op.operands[0].shape[2 if "transpose_lhs" in op.attrs else 4]
        yield op.shape[4]
    elif op.kind == "linear":
        yield op.operands[0].shape[4]
        yield op.shape[4]
