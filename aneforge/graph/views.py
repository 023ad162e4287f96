"""Ops that look at numbers in another way and compute nothing: a reshape, a slice, a cast of token ids."""

from __future__ import annotations

from aneforge.graph.tensor import Tensor

_MOVES = frozenset(
    (
        *("reshape", "view", "unsafe_view", "flatten", "flatten2d", "squeeze", "unsqueeze", "expand_dims", "alias"),
        *("slice", "slice_by_size", "slice_by_index", "select", "narrow", "crop", "split", "chunk", "unbind"),
        *("transpose", "permute", "t", "expand", "broadcast_to", "tile", "repeat", "identity", "clone", "copy"),
        *("contiguous", "detach", "lift_fresh_copy"),
    )
)
"""Names that graphs and the languages of model files have for ops that move numbers."""

_PICKS = frozenset(
    (
        *("gather", "gather_nd", "embedding", "index", "index_select", "take", "gatherelements", "gathernd"),
        *("sort", "topk", "reverse", "flip", "roll"),
    )
)
"""Ops that give some of the numbers that they read, as these are."""

_CASTS = frozenset(("cast", "to", "to_copy", "convert_element_type", "int", "long", "type_as"))


def moves_only(node: Tensor) -> bool:
    """Whether an op hands on the numbers that it reads, in another order, shape or type."""
    return _is_move(node) or plain_name(node) in _CASTS


def hands_on(node: Tensor) -> bool:
    """Whether every number that an op gives is one that it reads."""
    return _is_move(node) or plain_name(node) in _PICKS


def is_integer_view(node: Tensor) -> bool:
    """Whether an op only reshapes, cuts or converts integers: the host does that where it hands them over, and nothing
    is computed."""
    if not node.inputs or node.inputs[0].dtype != "int32":
        return False
    return (_is_move(node) and node.dtype == "int32") or plain_name(node) in _CASTS


def _is_move(node: Tensor) -> bool:
    """PyTorch's select takes one place of an axis; that of other languages chooses between two tensors."""
    name = plain_name(node)
    return name in _MOVES and (name != "select" or len(node.inputs) == 1)


def plain_name(node: Tensor) -> str:
    """The name of an op without its language: ``aten._to_copy.default`` is ``to_copy``, ``Reshape`` is ``reshape``."""
    kind = node.attrs["kind"] if node.op == "host" else node.op
    return kind.removeprefix("aten.").partition(".")[0].strip("_").casefold()
