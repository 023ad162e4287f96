"""Pad folding: a pad before a window becomes the window's own padding."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import merged_sources, pass_
from aneforge.compiler.plan import plan_of
from aneforge.compiler.schedule.layers import LayerGraph

_ROWS, _COLUMNS = 3, 4


@pass_("fold-padding", 4, requires=["task groups"], ensures=["folded pads"], only=["padding"])
def fold_padding(module: Module, chip: Facts) -> int:
    """Pad optimisation: a zero pad that only one convolution reads goes into its explicit_padding.

    An average pool takes it likewise if it has no padding of its own: then every zero counts, as ``inc_pad`` says.
    The map that is read instead is smaller than the padded one, so no task group's peak grows.
    """
    gone: set[int] = set()
    graph = LayerGraph.of_module(module)
    for op in module.ops:
        reader = op.only_user
        if op.kind != "padding" or reader is None or not _takes(graph, op, reader):
            continue
        _unpair(graph, op)
        rows, columns = op.attrs["padding_sizes"][_ROWS], op.attrs["padding_sizes"][_COLUMNS]
        added = (0, 0, *rows, *columns)
        name = "explicit_padding" if reader.kind == "convolution" else "padding"
        own = reader.attrs[name]
        padding = tuple(before + extra for before, extra in zip(own, added, strict=True))
        counted = {"inc_pad": True} if reader.kind == "average_pool" else {}
        reader.attrs = {**reader.attrs, name: padding, **counted}
        reader.set_operand(0, op.operands[0])
        reader.sources = merged_sources(op, reader)
        gone.add(graph.of[op].number)
    if gone:
        module.sweep()
        plan_of(module).drop_layers(gone)
    return len(gone)


def _unpair(graph: LayerGraph, op: Op) -> None:
    """The layer is removed, so nothing is chained into it or runs beside it any more."""
    layer = graph.of[op]
    for producer in layer.producers:
        producer.chained = False
    if layer.co_issue is not None:
        graph.numbered[layer.co_issue].co_issue = None


def _takes(graph: LayerGraph, op: Op, reader: Op) -> bool:
    if op.attrs["padding_modes"] != "Zero" or reader.operands[0] is not op or _shares_layer(op):
        return False
    own_layer, other = graph.of[op], graph.of.get(reader)
    if other is None or (own_layer.segment, own_layer.task_group) != (other.segment, other.task_group):
        return False
    kernel = _kernel(reader)
    sizes = op.attrs["padding_sizes"]
    if any(map(any, sizes[:_ROWS])):
        return False  # a window has no padding along the batch, the depth or the channels
    if kernel is None:
        return False
    own = reader.attrs["explicit_padding" if reader.kind == "convolution" else "padding"]
    rows, columns = (
        tuple(before + extra for before, extra in zip(sizes[axis], own[2 * axis - 4 : 2 * axis - 2], strict=True))
        for axis in (_ROWS, _COLUMNS)
    )
    # Padding as wide as the kernel would give windows that see nothing else.
    return max(rows) < kernel[0] and max(columns) < kernel[1]


def _shares_layer(op: Op) -> bool:
    """Whether ops fill the slots of a pad's layer, which then has work of its own."""
    return any(user.layer == op.layer for user in op.users)


def _kernel(reader: Op) -> tuple[int, int] | None:
    """Rows and columns of the window that the padding has to stay below, if the reader can take padding."""
    if reader.kind == "convolution" and reader.attrs.get("padding_mode", "Zero") == "Zero":
        kernel, dilation = reader.attrs["kernel_sizes"], reader.attrs["dilation_rates"]
        return (kernel[1] - 1) * dilation[1] + 1, (kernel[2] - 1) * dilation[2] + 1
    if reader.kind == "average_pool" and not any(reader.attrs["padding"]):
        return reader.attrs["ksize"][1], reader.attrs["ksize"][2]
    return None
