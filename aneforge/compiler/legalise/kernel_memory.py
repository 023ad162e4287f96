"""How much kernel memory a weight needs, and which cap applies to it (listing 24.3). Phase 4 uses the same rules."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.codecs.flows import form_of
from aneforge.compiler.facts import Facts
from aneforge.compiler.legalise.pieces import output_axis, stored_names
from aneforge.compiler.lower.builder import reject_string
from aneforge.compiler.refusal import Refused
from aneforge.targets.streams import Flow, LayerConditions, WeightForm, tiles_overlap, weight_flow

KERNELS = kinds_with(Trait.STORED_KERNEL)
"""Ops whose stored weight lies in kernel memory as a whole; the engine tiles the right-hand side of a matmul."""

CONTRACTIONS = kinds_with(Trait.CONTRACTION)
"""Ops that may have a stored kernel or a stored right-hand side."""

TABLES = ("kernel_palettized_LUT", "kernel_lut")
"""Attributes that name the table of a palette."""

_CODES = ("si8", "ui8")
_READABLE = WeightForm("fp16")
_MOVES = kinds_with(Trait.MOVEMENT)


def reads_codes(op: Op) -> bool:
    """Whether a product reads decoded 8-bit codes, as they are or in another order."""
    x = op.operands[0]
    while x.kind in _MOVES and len(x.operands) == 1:
        x = x.operands[0]
    read = x.operands[0].type if x.kind == "dequant" else None
    return read is not None and read.dtype in _CODES


def layer_conditions(op: Op, working_set: int) -> LayerConditions:
    """What of an op decides whether its weight streams; fp16 is a format like the others (U28)."""
    steps, dilations = op.attrs.get("strides", ()), op.attrs.get("dilation_rates", ())
    overlap = False
    if "kernel_sizes" in op.attrs:
        larger = max([side.type.bytes for side in (op.operands[0], op) if side.type is not None])
        overlap = tiles_overlap(op.attrs["kernel_sizes"][1], op.attrs["strides"][1], larger, working_set)
    return LayerConditions(
        unit_stride=steps.count(1) == len(steps),
        no_dilation=dilations.count(1) == len(dilations),
        tiles_overlap=overlap,
        immutable=len(op.operands) > 1 and op.operands[1].kind == "const_in",
        meets_codes=reads_codes(op),
    )


def kernel_form(module: Module, op: Op) -> WeightForm:
    """The form that an op's kernel is stored in: by the attributes of the op, or as the model brought it."""
    kernel = op.operands[1]
    if kernel.kind != "const_in" or kernel.type is None:
        return WeightForm("fp16")
    if kernel.type.dtype != "f16":
        looks_up = any(name in op.attrs for name in TABLES)
        return WeightForm(
            "palette" if looks_up else "affine",
            int(kernel.type.dtype[2:]),
            looks_up=looks_up,
            is_scaled=looks_up and "kernel_scale" in op.attrs,
            has_zero_points="kernel_zero_point" in op.attrs,
        )
    weight = module.weights.get(kernel.attrs["weight"])
    form = form_of(None if weight is None else weight.encoded)
    if form.kind == "palette" or (form.kind == "affine" and form.bits in (4, 8)):
        # Lowering writes these as attributes where it can; vectors and several tables are stored beside the op.
        return form._replace(is_readable=form.vector_size > 1 or form.tables > 1)
    return form


def kernel_flow(module: Module, op: Op, chip: Facts) -> Flow:
    """Whether an op's stored kernel streams in its form."""
    return weight_flow(chip, kernel_form(module, op), layer_conditions(op, chip["max_operand_bytes"]))


def layer_flow(op: Op, chip: Facts) -> Flow:
    """The flow of a kernel whose form the chip reads: behind ``expand-encodings`` only the layer matters."""
    return weight_flow(chip, _READABLE, layer_conditions(op, chip["max_operand_bytes"]))


def kernel_demand(module: Module, op: Op) -> int:
    """The bytes of an op's whole stored weight in the form that it has; 0 where none is stored."""
    if op.kind not in KERNELS or op.operands[1].kind != "const_in":
        return 0
    return constant_size(module, op.operands[1])


def constant_size(module: Module, constant: Op) -> int:
    """The bytes of a stored constant in the form that the module has it in; codes without their table and scales."""
    assert constant.type is not None
    weight = module.weights.get(constant.attrs["weight"])
    if constant.type.dtype != "f16" or weight is None or weight.encoded is None:
        return constant.type.bytes
    return weight.encoded.stored_bytes


def exceeds_kernel_memory(module: Module, op: Op, chip: Facts) -> bool:
    """Whether a weight is too large for one layer: any above the streamed cap, streamed or not (chapter 24)."""
    return kernel_demand(module, op) > chip["kmem_cap_streamed"]


def kernel_passes(module: Module, op: Op, chip: Facts) -> int:
    """How often the input passes the engine: once where the weight streams or fits, else once for every part of the
    output channels that kernel memory holds.

    Each lane builds the coefficients of its own share of the output channels, and that share is what the dense cap
    is compared with (chapter 35, U28): 64 KB a lane, not 64 KB a layer.
    """
    demand = kernel_demand(module, op)
    if demand <= chip["kmem_cap_dense"] or layer_flow(op, chip).cap != chip["kmem_cap_dense"]:
        return 1
    outputs = op.shape[output_axis(op)]
    share = -(-outputs // chip["kernel_lanes"])
    return -(-share // outputs_at_once(op, demand, chip["kmem_cap_dense"]))


def outputs_at_once(op: Op, demand: int, cap: int) -> int:
    """How many output channels of a weight of ``demand`` bytes a stretch of kernel memory holds; a single one that
    exceeds it cannot be cut."""
    single = demand // op.shape[output_axis(op)]
    if single > cap:
        reason = f"the kernel of one output channel takes {single} bytes; kernel memory holds {cap}"
        raise Refused(op, "kernel-memory", reason, reject_string("MatrixMult", "can not fit"))
    return max(1, cap // max(1, single))


def stored_size(module: Module, op: Op) -> int:
    """The bytes of one stored constant in the form it is packed in; its op's table and scales are counted apart."""
    assert op.type is not None
    if op.type.dtype != "f16" or op.labels.get("encoding", "fp16") == "fp16":
        return op.type.bytes
    encoded = module.weights[op.attrs["weight"]].encoded
    assert encoded is not None
    return encoded.stored_bytes


def side_constants_size(module: Module, op: Op) -> int:
    """The bytes of the table, scales and zero points of an op's kernel, as they are stored."""
    sizes = {"kernel_zero_point": 1}
    known = ((name, module.weights.get(op.attrs[name])) for name in stored_names(op))
    return sum(weight.size * sizes.get(name, 2) for name, weight in known if weight is not None)
