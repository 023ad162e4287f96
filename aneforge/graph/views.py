"""Ops that look at numbers in another way and compute nothing: a reshape, a slice, a cast of token ids."""

from __future__ import annotations

from aneforge.graph.node import ops_with
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

_NAMES = {
    GraphTrait.MOVEMENT: "view unsafe_view unsqueeze alias slice narrow split chunk unbind permute t expand "
    "broadcast_to repeat identity clone copy contiguous detach lift_fresh_copy",
    GraphTrait.PICK: "gather_nd embedding index index_select take gatherelements gathernd flip roll",
    GraphTrait.SORT: "argsort",
    GraphTrait.PRODUCT: "mm bmm addmm gemm baddbmm conv1d conv2d conv3d convolution convtranspose",
    GraphTrait.CONVOLUTION: "conv1d conv2d conv3d convolution convtranspose",
}
"""Names that the languages of model files have for ops with a trait, where the graph has another name or none."""

_CASTS = frozenset(("cast", "to", "to_copy", "convert_element_type", "int", "long", "type_as"))


def does(node: Tensor, trait: GraphTrait) -> bool:
    """Whether an op has a trait, by its name in its own language where the host computes it."""
    if node.op != "host":
        return node.is_a(trait)
    name = plain_name(node)
    if name == "select":  # PyTorch's takes one place of an axis; that of other languages chooses between two tensors
        return trait is GraphTrait.MOVEMENT and len(node.inputs) == 1
    return name in ops_with(trait) or name in _NAMES.get(trait, "").split()


def moves_only(node: Tensor) -> bool:
    """Whether an op hands on the numbers that it reads, in another order, shape or type."""
    return does(node, GraphTrait.MOVEMENT) or plain_name(node) in _CASTS


def hands_on(node: Tensor) -> bool:
    """Whether every number that an op gives is one that it reads."""
    return any(does(node, trait) for trait in (GraphTrait.MOVEMENT, GraphTrait.PICK, GraphTrait.SORT))


def is_integer_view(node: Tensor) -> bool:
    """Whether an op only reshapes, cuts or converts integers: the host does that where it hands them over, and nothing
    is computed."""
    if not node.inputs or node.inputs[0].dtype != "int32":
        return False
    return (does(node, GraphTrait.MOVEMENT) and node.dtype == "int32") or plain_name(node) in _CASTS


def plain_name(node: Tensor) -> str:
    """The name of an op without its language: ``aten._to_copy.default`` is ``to_copy``, ``Reshape`` is ``reshape``."""
    kind = node.attrs["kind"] if node.op == "host" else node.op
    return kind.removeprefix("aten.").partition(".")[0].strip("_").casefold()


# What an input of a graph promises about its numbers.


def promised_range(port: Tensor) -> tuple[float, float] | None:
    """Between which numbers an input lies: bytes, or what its ``max_abs`` says; None where nobody bounded it."""
    if port.dtype == "uint8":
        return 0.0, 255.0
    most = port.attrs.get("max_abs")
    return None if most is None else (-float(most), float(most))
