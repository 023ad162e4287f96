"""The model's own ONNX file with what each chip makes of every node, for a viewer such as Netron.

Netron shows a node's ``doc_string`` and ``metadata_props``. The graph is not changed. An operation counts for every
node that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError, first_line, install_hint
from aneforge.reports.document import Report
from aneforge.reports.rows import STATUSES, OpRow

_PREFIX = "aneforge."
_NOTHING = "nothing to compute: a constant, a view, or part of a neighbour"


def annotated_onnx(report: Report) -> bytes:
    """The file with notes, as bytes. Weights in other files stay there: write the result beside the model."""
    onnx, model = _opened(report)
    nodes = [node for graph in _graphs(onnx, model) for node in graph.node]
    names = [node.name or f"{node.op_type}_{place}" for place, node in enumerate(nodes)]  # as the importer calls it
    owned = ops_of_nodes(report, [(name, tuple(node.output)) for name, node in zip(names, nodes, strict=True)])
    layers = _layers_by_op(report)
    for place, node in enumerate(nodes):
        notes = _notes(report, [report.ops[number] for number in owned.get(place, ())], layers)
        node.doc_string = "\n".join([*([node.doc_string] if node.doc_string else []), *notes.values()])
        for key, note in notes.items():
            node.metadata_props.add(key=f"{_PREFIX}{key}", value=note)
    return model.SerializeToString()


def _opened(report: Report) -> tuple[Any, Any]:
    source = report.source
    if source is None or Path(source).suffix.casefold() != ".onnx":
        name = report.model["name"]
        raise AneforgeError(
            f"{name}: not an ONNX file; notes for Netron are written into a copy of one. Give --format html."
        )
    try:
        import onnx
    except ModuleNotFoundError:
        raise AneforgeError(f"--format onnx needs the onnx package: {install_hint('onnx')}") from None
    try:
        return onnx, onnx.load(source, load_external_data=False)
    except Exception as error:
        raise AneforgeError(f"{source}: cannot be read again ({first_line(error)})") from None


def _graphs(onnx: Any, model: Any) -> list[Any]:
    """The graph of a model and those inside its nodes."""
    found, waiting = [], [model.graph]
    while waiting:
        graph = waiting.pop()
        found.append(graph)
        waiting += [item.g for node in graph.node for item in node.attribute if item.type == onnx.AttributeProto.GRAPH]
    return found


def ops_of_nodes(report: Report, nodes: list[tuple[str, tuple[str, ...]]]) -> dict[int, list[int]]:
    """The operations that come from each node of the file, which they name by its name or its outputs."""
    node_of_name = {word: place for place, (name, outputs) in enumerate(nodes) for word in (name, *outputs) if word}
    owned: dict[int, list[int]] = {}
    for op in report.ops:
        for place in {node_of_name[name] for name in op.nodes or (op.name,) if name in node_of_name}:
            owned.setdefault(place, []).append(op.number)
    return owned


def _layers_by_op(report: Report) -> list[Mapping[int, list[int]]]:
    """For each program: the layers that come from each operation."""
    listed = []
    for program in report.programs:
        layers: dict[int, list[int]] = {}
        for layer in program.layers:
            for number in layer.sources:
                layers.setdefault(number, []).append(layer.number)
        listed.append(layers)
    return listed


def _notes(report: Report, ops: list[OpRow], layers: list[Mapping[int, list[int]]]) -> dict[str, str]:
    """One line for each chip: the status, and the layers with engine and time."""
    if not ops:
        return {"status": _NOTHING}
    notes = {}
    for place, chip in enumerate(report.chips):
        statuses = dict.fromkeys(STATUSES[op.statuses[place]] for op in ops)
        line = f"{chip.label}: {', '.join(statuses)}"
        if chip.program is not None:
            program = report.programs[chip.program]
            own = sorted({number for op in ops for number in layers[chip.program].get(op.number, ())})
            shown = ((program.layers[number], chip.layer_us[number]) for number in own[:4])
            parts = (f"layer {layer.number} {layer.engine} {layer.op} {us:g} us" for layer, us in shown)
            line = "; ".join([line, *parts, *([f"{len(own) - 4} more layers"] if len(own) > 4 else [])])
        notes[chip.name] = line
    return notes
