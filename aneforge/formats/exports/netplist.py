"""``af.save_netplist``: a graph as a netplist, one unit for each layer of the engine's language.

What has no published form is refused, all of it at once and under the user's names; nothing is guessed.
"""

from __future__ import annotations

import plistlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.chips import store
from aneforge.chips.chip import Target
from aneforge.chips.families import Family
from aneforge.compiler.compile import resolve_target
from aneforge.compiler.draft import Draft
from aneforge.compiler.legal.passes import rewritten_for
from aneforge.compiler.lower import Lowered, LoweringError, lower, rewritten_ops
from aneforge.compiler.pipeline import run_pipeline
from aneforge.compiler.record import Record
from aneforge.engine.ir import Module, Op
from aneforge.errors import first_line
from aneforge.files import written_file
from aneforge.formats import FORMATS
from aneforge.formats.arguments import Source, chip_of, graph_of
from aneforge.formats.exports.mil import ExportError, refuse_host_ops
from aneforge.formats.exports.netplist_forms import ValueNames, in_published_forms
from aneforge.formats.exports.netplist_units import Constant, Rounded, Units, WrittenUnit, operands_of
from aneforge.formats.netplist.procedures import read_procedure
from aneforge.formats.netplist.schema import interleaves
from aneforge.graph.graph import Graph
from aneforge.graph.node import definitions

_ALIGNED = 64  # bytes; where each block of a weight file starts
_NETWORK, _OPERATION, _PROCEDURE = "net", "op", "main"
_RESERVED = ("Units", "Weights", "Constants")
_STORED = {"Float16": "<f2", "UInt16": "<u2"}
_TYPES = {"f16": "Float16", "ui8": "UInt8"}


@dataclass(frozen=True)
class SavedNetplist:
    """What was written: the property list, its weight file, and how many units of each type."""

    path: Path
    weights: Path | None
    """The file of kernels and constants; None where there are none."""
    units: Mapping[str, int]
    changes: tuple[Record, ...]
    """The rewrites that the netplist contains."""
    rounded: tuple[Rounded, ...]
    """Parameters that fp16 does not hold."""

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {tag}" for tag, count in self.units.items())
        lines = [f"{self.path}: {sum(self.units.values())} units ({counts})"]
        if self.weights is not None:
            lines.append(f"  weights: {self.weights.name}, {self.weights.stat().st_size} bytes")
        lines += [f"  rewritten: {change}" for change in dict.fromkeys(map(str, self.changes))]
        lines += [f"  rounded: {rounded}" for rounded in self.rounded]
        return "\n".join([*lines, "  not compiled on a Mac here"])

    def to_json(self) -> dict[str, Any]:
        weights = None if self.weights is None else str(self.weights)
        changes = {"rewritten": list(map(str, self.changes)), "rounded": list(map(str, self.rounded))}
        return {"path": str(self.path), "weights": weights, "units": dict(self.units), **changes}


def save_netplist(
    model: Source,
    path: str | Path,
    binary: bool = False,
    target: str | int | Target | None = None,
    overwrite: bool = False,
    *,
    interleave: Mapping[str, int] | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> SavedNetplist:
    """Write a model as a netplist (schema 1.0.10), ``x.plist``, with its kernels and constants in ``x.weights.bin``.

    ``target`` is the chip for which phases 0 and 1 rewrite the model, on the direct route; without one only what has
    no backend op at all is rewritten. ``interleave`` packs the channels of ports by name (1 for the others). The ports
    of a netplist that is given as a path keep theirs.
    """
    file = Path(path)
    if file.suffix != ".plist":
        raise ExportError(f"{file.name}: the name of a netplist ends in .plist. Change the name.")
    weights = file.with_name(f"{file.stem}.weights.bin")
    for existing in (file, weights):
        if existing.exists() and not overwrite:
            raise ExportError(f"{existing}: the file exists. Use overwrite=True (--overwrite) to replace it.")
    if not file.resolve().parent.is_dir():
        raise ExportError(f"{file}: the folder {file.parent} does not exist. Create it first.")
    graph = graph_of(model, dims, function)
    refuse_host_ops(graph)
    lowered, changes = _lowered(graph, None if target is None else chip_of(target, model))
    packed = {**_stated_interleave(model, function), **(interleave or {})}
    written = _Document(graph, lowered, packed, target is not None)
    written.write(file, weights, binary)
    has_weights = bool(written.blocks)
    counts = Counter(unit.tag for unit in written.units.units)
    return SavedNetplist(file, weights if has_weights else None, counts, changes, tuple(written.units.rounded))


def _lowered(graph: Graph, chip: Target | None) -> tuple[Lowered, tuple[Record, ...]]:
    """The graph in the engine's language: as it stands, or after phases 0 and 1 for a chip."""
    if graph.states:
        raise ExportError(
            f"{next(iter(graph.states))}: a state has no published form in a netplist. Make it an input."
        )
    if chip is None:
        has_form = frozenset(definitions()) - rewritten_ops()
        draft = rewritten_for(graph, resolve_target(Family.A16), has_form)
        _refuse_host_inputs(draft)
        try:
            lowered = lower(draft.graph, draft.names, draft.stands, source=graph)
        except LoweringError as error:
            raise ExportError(f"model: {first_line(error)}") from None
        return lowered, tuple(draft.records)
    loose = Graph(graph.outputs)  # units that the chip lacks may be written with others, whoever stated them
    (branch,) = run_pipeline(lambda: Draft.of(loose, "direct"), [chip], until="fuse")
    if branch.error is not None:
        raise branch.error.on(chip.name, "direct")
    _refuse_host_inputs(branch.draft)
    return Lowered(branch.draft.code, branch.draft.inputs, branch.draft.outputs), branch.draft.all_records


def _refuse_host_inputs(draft: Draft) -> None:
    if draft.host_inputs:
        raise ExportError(
            f"{draft.host_inputs[0].name}: the op draws numbers at run time, which a netplist cannot do. Make them an "
            "input."
        )


def _stated_interleave(model: Source, function: str | None) -> dict[str, int]:
    """How a netplist packs the channels of its ports; they change no number, so that the graph does not hold them."""
    if not isinstance(model, (str, Path)) or (known := FORMATS.get(Path(model).suffix.casefold())) is None:
        return {}
    if known.name != FORMATS[".plist"].name:
        return {}
    procedure = read_procedure(Path(model), function)
    return {port.name: port.interleave for port in (*procedure.inputs, *procedure.outputs)}


class _Document:
    """One netplist while it is written."""

    def __init__(self, graph: Graph, lowered: Lowered, interleave: Mapping[str, int], has_target: bool) -> None:
        self.graph, self.lowered, self.interleave = graph, lowered, interleave
        module = lowered.module
        own = graph.names()
        self.names = ValueNames(module, frozenset(own[node.uid] for node in graph.nodes if node.name))
        self._check_ports()
        in_published_forms(module, self.names)
        self.units = self._units(module)
        if self.units.refusals:
            listed = ", ".join(map(str, self.units.refusals[:50]))
            more = f" and {len(self.units.refusals) - 50} more" if len(self.units.refusals) > 50 else ""
            count = len(self.units.refusals)
            rewritten = "" if has_target else "give a target (--target), for which some of them are rewritten; "
            raise ExportError(
                f"model: {count} {'node has' if count == 1 else 'nodes have'} no published form in a netplist: "
                f"{listed}{more}. To write the rest, {rewritten}replace them, or leave them to another program."
            )
        if not self.units.units:
            raise ExportError("model: the graph has no layers, and a netplist needs one. Add an op.")
        self.blocks: list[np.ndarray] = []
        self._places: dict[bytes, int] = {}
        self._size = 0

    def _units(self, module: Module) -> Units:
        labels = module.output["names"]
        outputs: dict[Op, str] = {}
        for op, label in zip(module.output.operands, labels, strict=True):
            if op.kind not in ("live_in", "const_in"):
                outputs.setdefault(op, label)
        own = self.graph.names()
        constants = frozenset(own[node.uid] for node in self.graph.nodes if node.op == "const" and node.name)
        ports = [op.attrs["name"] for op in module.inputs]
        return Units(module, self.names, constants, {*_RESERVED, *ports, *labels}, outputs).build()

    def _check_ports(self) -> None:
        for port in (*self.lowered.inputs, *self.lowered.outputs):
            if port.initial is not None:
                raise ExportError(
                    f"{port.name}: a trainable parameter is not stored in a netplist. Make it a constant."
                )
            if port.dtype not in _TYPES or (port.dtype != "f16" and port in self.lowered.outputs):
                raise ExportError(
                    f"{port.name}: a port of {port.dtype} has no published form in a netplist. Use fp16."
                )
        ports = {port.name: port.ndchw_shape for port in (*self.lowered.inputs, *self.lowered.outputs)}
        for name, packed in self.interleave.items():
            if name not in ports:
                raise ExportError(f"interleave: {name!r} is not a port; choose one: {', '.join(ports)}.")
            if packed not in interleaves():
                raise ExportError(
                    f"interleave: {name} has {packed}; choose one: {', '.join(map(str, interleaves()))}."
                )

    # The property list.

    def write(self, file: Path, weights: Path, binary: bool) -> None:
        """Both files are staged before the first takes its place."""
        document = self._document(weights.name)
        content = plistlib.dumps(document, fmt=plistlib.FMT_BINARY if binary else plistlib.FMT_XML, sort_keys=False)
        with ExitStack() as staged:
            staged.enter_context(written_file(file)).write(content)
            if self.blocks:
                stream = staged.enter_context(written_file(weights))
                for block in self.blocks:
                    stream.write(block.data)
                    stream.write(b"\0" * (-block.nbytes % _ALIGNED))

    def _document(self, weights: str) -> dict[str, Any]:
        units, module = self.units, self.lowered.module
        constants = {constant.name: self._constant(constant) for constant in units.constants}
        records = {unit.name: self._unit(unit) for unit in units.units}
        bindings = self._bindings(module)
        network = {"Units": list(records), "Weights": [], "Constants": list(constants), **records, **constants}
        network |= {name: {"Bottom": symbol} for name, symbol in bindings.items() if name != symbol}
        network["Weights"] = [weights] if self.blocks else []
        feeds = dict(operands_of(units.units))
        procedure = {
            "Name": _PROCEDURE,
            "InputList": [self._input(op, feeds) for op in module.inputs],
            "OperationList": [{"NetworkName": _NETWORK, "OperationName": _OPERATION}],
            "OutputList": [self._output(op, label) for op, label in self._results(module)],
        }
        version = store.load("layers")["netplist"]["version"]["v"]
        return {"Version": version, "Networks": [_NETWORK], "ProcedureList": [procedure], _NETWORK: network}

    @staticmethod
    def _results(module: Module) -> Sequence[tuple[Op, str]]:
        return tuple(zip(module.output.operands, module.output["names"], strict=True))

    def _bindings(self, module: Module) -> dict[str, str]:
        return {label: self.units.symbols[op] for op, label in self._results(module)}

    def _input(self, op: Op, feeds: Mapping[str, str]) -> dict[str, Any]:
        name = op.attrs["name"]
        n, d, c, h, w = op.shape
        assert op.type is not None
        sizes = {"BatchSize": n, "InputChannels": c, "InputDepth": d, "InputHeight": h, "InputWidth": w}
        packing = {"InputInterleave": self.interleave.get(name, 1), "InputType": _TYPES[op.type.dtype]}
        fed = {"Name": feeds[name]} if name in feeds else {}
        return {"InputName": name, **fed, "OperationName": _OPERATION, **packing, **sizes}

    def _output(self, op: Op, label: str) -> dict[str, Any]:
        packing = {"OutputInterleave": self.interleave.get(label, 1), "OutputType": "Float16"}
        fields = {"OutputName": label, "OperationName": _OPERATION, **packing, "OutputChannels": op.shape[2]}
        symbol = self.units.symbols[op]
        return {**fields, "Name": symbol}

    def _unit(self, unit: WrittenUnit) -> dict[str, Any]:
        params = dict(unit.params)
        if unit.kernel is not None:
            stored = {"KernelMode": "Dense", "KernelType": "Float16", "KernelIndex": 0}
            params |= {**stored, "KernelOffset": self._place(unit.kernel)}
        bottoms = list(unit.bottoms)
        return {"Name": unit.name, "Type": unit.tag, "Bottom": bottoms, "OutputType": "Float16", **unit.fields,
                "Params": params}  # fmt: skip

    def _constant(self, constant: Constant) -> dict[str, Any]:
        n, d, c, h, w = constant.shape
        sizes = {"BatchSize": n, "Channels": c, "Depth": d, "Height": h, "Width": w, "Interleave": 1, "Index": 0}
        numbers = constant.numbers.transpose(0, 2, 1, 3, 4)  # as a user orders it: channels before depth
        place = self._place(numbers, _STORED[constant.type])
        record = {f"Constant{key}": value for key, value in sizes.items()}
        return {"ConstantName": constant.name, "ConstantType": constant.type, **record, "ConstantByteOffset": place}

    # The weight file.

    def _place(self, numbers: np.ndarray, kind: str = "<f2") -> int:
        """Where a block of numbers starts; equal blocks are stored once."""
        block = np.ascontiguousarray(numbers, kind)
        key = blake2b(block.data, digest_size=16).digest()
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._size
            self.blocks.append(block)
            self._size += -(-block.nbytes // _ALIGNED) * _ALIGNED
        return place
