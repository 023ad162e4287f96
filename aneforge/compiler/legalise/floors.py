"""Check the family at which an op starts, and the support byte that its validator reads."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.legalise.legacy import FLOOR_DIVIDE
from aneforge.compiler.lower.builder import reject_string
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused, RefusedOps
from aneforge.targets.assumed import fact_label
from aneforge.targets.families import Family8

# Op or unit type: the support byte that its validator reads (table 22.5, layers.json gate_byte), the layer, and how
# its words begin where a layer has words for it.
_GATES: dict[str, tuple[str, str, str | None]] = {
    "softmax": ("softmax", "Softmax", "Softmax is not"),
    "instance_norm": ("instance_norm", "InstanceNorm", "InstanceNorm layer not"),
    "resample": ("texture_engine", "Resample", None),
    "crop_resize": ("texture_engine", "CropResize", "Codegen Error"),
    "AffineTransform": ("texture_engine", "AffineTransform", "affine transform is not"),
    "Dropout": ("rng", "Dropout", "Dropout layer is not"),
    "RandomGenerator": ("rng", "Random", "Random layer is not"),
    "LocalResponseNormalization": ("lrn", "LRN", "LRN is not"),
    "Symmetric": ("texture_engine", "Pad", "Architecture does not"),
    "Reflective": ("texture_engine", "Pad", "Architecture does not"),
    "resize": ("texture_engine", "Resize", "failed to map"),
}


@pass_(
    "check-floors",
    2,
    reads=["family8", "rng", "softmax", "instance_norm", "lrn", "texture_engine"],
    requires=["layers", "family forms", "mapped resizes", "mapped gathers"],
    ensures=["floors"],
    checks=True,
)
def check_floors(module: Module, chip: Facts) -> int:
    """MinimumFamily: refuse an op below its floor, or one whose support byte is clear (listing 24.2, table 22.5).

    It runs after the passes that replace such ops by others. A target without a family has no floors (U31). A floor is
    one of the conversion route: a layer that was authored directly is gated by the bytes that its validator reads,
    which phase 0 has asked (chapter 26, C13).
    """
    family = chip.get("family8")
    index = None if family is None else Family8[family]
    refused = [problem for problem in (_problem(op, index, chip) for op in module.ops) if problem is not None]
    if refused:
        raise RefusedOps(refused)
    return 0


def _problem(op: Op, index: Family8 | None, chip: Facts) -> Refused | None:
    gate = _GATES.get(_feature(op))
    floor = None if op.spec.floor is None or "bridge" in op.labels else op.spec.floor.value
    if index is not None and floor is not None and index < floor and op.labels.get("data_path") != FLOOR_DIVIDE:
        reason = f"{op.name} starts at family {Family8(floor).name}; this target is {index.name}"
        return Refused(op, "minimum-family", reason, _words(gate))
    if gate is not None and not chip[gate[0]]:
        reason = f"{_feature(op)} needs the support byte {fact_label(gate[0])}; it is clear on this target"
        return Refused(op, "support-byte", reason, _words(gate))
    return None


def _feature(op: Op) -> str:
    """What a validator checks: the op, the type of a unit, or the mode of a padding."""
    if op.kind == "unit":
        return op.attrs["type"]
    return op.attrs["padding_modes"] if op.kind == "padding" else op.kind


def _words(gate: tuple[str, str, str | None] | None) -> str | None:
    if gate is None or gate[2] is None:
        return None
    return reject_string(gate[1], gate[2])
