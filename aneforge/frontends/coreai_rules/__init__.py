"""What each operation of Core AI's language becomes; nothing here needs its package."""

from __future__ import annotations

from aneforge.frontends.coreai_rules import compressed, elementwise, movement, products, spatial
from aneforge.frontends.coreai_rules.op import Rule

__all__ = ["INTEGERS", "JOINED", "REFUSED", "RULES"]

_COPIES = ("coreaix.copy_discarding_constraints", "coreaix.copy_with_constraints")

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **products.RULES,
    **spatial.RULES,
    **movement.RULES,
    **compressed.RULES,
    **dict.fromkeys(_COPIES, lambda op: op.value(0)),
}

INTEGERS = {
    *(
        "argmax",
        "argsort",
        "cast",
        "reshape",
        "transpose",
        "slice",
        "slice_update",
        "concat",
        "split",
        "tile",
        "where",
    ),
    *("expand_dims", "shrink_dims", "broadcast_to", "broadcast_in_dims", "gather_along_axis", "gather_nd", "reverse"),
    *("equal", "not_equal", "greater", "maximum", "minimum", "dequantize", *_COPIES),
}
"""What may be done with whole numbers that are held as fp16: moving and comparing them is exact."""

JOINED = {
    **dict.fromkeys(("equal", "not_equal", "greater", "maximum", "minimum"), range(2)),
    "concat": range(1, 1 << 20),
    "slice_update": range(4, 5),
    "where": range(1, 3),
}
"""Operands that meet such numbers: known ones beyond what fp16 holds exactly would change on the way."""

REFUSED = {
    "asymmetric_quantization_statistics": "scales that follow from the data; the engine's are fixed",
    "create_complex": "complex numbers, which the engine does not have",
    "delegate": "a part that was compiled for one processor already; save the asset before that step",
    "image_to_tensor": "an image with a pixel format; give the graph a tensor instead",
    "imaginary_part": "complex numbers, which the engine does not have",
    "metal4_kernel": "a kernel written for the GPU",
    "non_zero": "how many results there are depends on the data",
    "real_part": "complex numbers, which the engine does not have",
    "symmetric_quantization_statistics": "scales that follow from the data; the engine's are fixed",
    "tensor_to_image": "an image with a pixel format; let the graph give a tensor instead",
}
"""Operations without a form on this engine, and why."""
