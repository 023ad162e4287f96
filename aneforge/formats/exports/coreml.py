"""A graph as an ML program that Apple's tools load.

Weights keep the form they are stored in (constexpr ops). The package was never run on a device here: it is read back,
and judged by coremltools' own type checks. ``af.export_coreml`` says what is written (``study/exporting.py``).
"""

from __future__ import annotations

import json
import re
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from aneforge.compiler.draft import Draft
from aneforge.compiler.record import Record
from aneforge.files import written_folder
from aneforge.formats.exports.mil import REFUSED, RULES, ExportError, Mil, codes, quiet_mil
from aneforge.graph.encoding import Encoded
from aneforge.graph.fp8 import FP8
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor


@dataclass(frozen=True)
class Exported:
    """What was written: the package, how many ops it has, which rewrites were made, and how weights are stored."""

    path: Path
    ops: int
    changes: tuple[Record, ...]
    """The rewrites that the package contains."""
    left: tuple[Record, ...]
    """The rewrites of the target that no op of Core ML can say: its own compiler makes them."""
    refused: tuple[str, ...]
    """The nodes that the target refuses; they are in the package, and another device runs them."""
    encodings: Mapping[str, int]
    names: Mapping[str, str]
    """The model's names of nodes, by the names they have in the package."""

    @property
    def rewritten(self) -> tuple[str, ...]:
        """Each rewrite in a line."""
        return tuple(map(str, self.changes))

    def __str__(self) -> str:
        stored = ", ".join(f"{count} {name}" for name, count in self.encodings.items()) or "none"
        lines = [f"{self.path}: {self.ops} ops, weights: {stored}"]
        lines += _grouped("rewritten", self.changes) + _grouped("left to the device's compiler", self.left)
        if self.refused:
            lines.append(f"  refused by the chip (aneforge check says why): {_some(self.refused)}")
        return "\n".join([*lines, "  not run on a device here"])

    def to_json(self) -> dict[str, Any]:
        record = {"path": str(self.path), "ops": self.ops, "encodings": dict(self.encodings)}
        changes = {"rewritten": list(self.rewritten), "left": list(map(str, self.left)), "refused": list(self.refused)}
        return {**record, **changes, "names": dict(self.names), "run_on_device": False}


def _grouped(heading: str, records: Sequence[Record]) -> list[str]:
    """For each rewrite its name and the nodes, and in a second line what it does."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.rewrite, []).append(record)
    lines = []
    for name, group in groups.items():
        lines.append(f"  {heading} ({name}): {_some(list(dict.fromkeys(record.node for record in group)))}")
        lines += [f"    {line}" for line in wrap(group[0].row.into, 96)]
    return lines


def _some(names: Sequence[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def write_package(
    file: Path,
    draft: Draft,
    states: Mapping[str, str],
    left: tuple[Record, ...] = (),
    refused: tuple[str, ...] = (),
) -> Exported:
    """Write a graph that Core ML's language can say. ``left`` and ``refused`` go into what is reported of it."""
    if draft.host_inputs:
        raise ExportError(
            f"{draft.host_inputs[0].name}: the op draws numbers at run time, which a package cannot do. Make them "
            "an input."
        )
    if not draft.graph.inputs:
        raise ExportError("model: the graph has no inputs, so it is a constant. Evaluate it with af.evaluate.")
    written = _Writer(quiet_mil(), draft.graph, draft.names, states).package(file)
    return Exported(file, written.ops, tuple(draft.records), left, refused, written.encodings, written.names)


class _Writer:
    """One package while it is written. ``called`` are the model's names of the nodes."""

    def __init__(self, mil: Mil, graph: Graph, called: Mapping[int, str], states: Mapping[str, str]) -> None:
        self.mil, self.graph, self.called, self.states = mil, graph, called, states
        self.values: dict[int, Any] = {}
        self.own: dict[int, str] = {}  # what ports and outputs are called in the package
        self.names: dict[str, str] = {}  # in the package -> in the model
        self._numbers: dict[str, int] = {}  # the last number behind a name
        self.encodings: dict[str, int] = {}
        self.ops = 0
        read = {operand.uid for node in graph.nodes if node.op != "dequantize" for operand in node.inputs}
        self.read_as_numbers = read | {output.uid for output in graph.outputs}

    def package(self, file: Path) -> _Writer:
        mil, leaves = self.mil, (*self.graph.inputs, *self.graph.parameters)
        for leaf in dict.fromkeys((*leaves, *self.graph.outputs)):
            self.own[leaf.uid] = self._name(self.called[leaf.uid])
        ports: OrderedDict[str, Any] = OrderedDict()
        for leaf in leaves:
            state = self.called[leaf.uid] in self.states
            ports[self.own[leaf.uid]] = mil.port(self.own[leaf.uid], leaf.shape, state, leaf.dtype)
        with mil.function(ports) as function:
            for leaf in leaves:
                value, name = function.inputs[self.own[leaf.uid]], self.own[leaf.uid]
                is_state = self.called[leaf.uid] in self.states
                self.values[leaf.uid] = mil.op("read_state", f"{name}_before", input=value) if is_state else value
            for node in self.graph.nodes:
                if not node.definition.leaf or node.op in REFUSED:
                    self._node(node)
            self._finish(function)
        self._save(function, file)
        return self

    def _name(self, name: str) -> str:
        """A name that the package may use: letters, digits and underscores, and nobody else's."""
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"
        identifier, number = plain, self._numbers.get(plain, 0)
        while identifier in self.names:
            number += 1
            identifier = f"{plain}_{number}"
        self._numbers[plain] = number
        self.names[identifier] = name
        return identifier

    def _node(self, node: Tensor) -> None:
        name, rule = self.called[node.uid], RULES.get(node.op)
        if node.op == "quantize" and node.uid not in self.read_as_numbers:
            rule = codes
        if rule is None:
            reason = REFUSED.get(node.op, "Core ML's language has no op for it")
            raise ExportError(f"{name} ({node.op} {list(node.shape)}): {reason}")
        self.ops += 1
        operands = [self.value(operand) for operand in node.inputs]
        self.values[node.uid] = rule(self.mil, self.own.get(node.uid) or self._name(name), node, *operands)

    def value(self, node: Tensor) -> Any:
        value = self.values.get(node.uid)
        if value is None:
            assert node.weight is not None
            value = self.values[node.uid] = self._constant(node)
        return value

    def _constant(self, node: Tensor) -> Any:
        """A weight in the form it is stored in; plain ones as fp16."""
        assert node.weight is not None
        encoded = node.weight.encoded
        name = self._name(node.name or f"weight_{node.weight.key[:8]}")
        # A file has no 8-bit floating point and, written here, no sparse palettes.
        if encoded is None or encoded.form in FP8:
            written = "fp16"
        else:
            written = "sparse" if encoded.form == "sparse" else encoded.name
        self.encodings[written] = self.encodings.get(written, 0) + 1
        return (
            self.mil.constant(node.weight.array, name)
            if encoded is None
            else self._compressed(encoded.settled(), name)
        )

    def _compressed(self, encoded: Encoded, name: str) -> Any:
        mil = self.mil
        if encoded.form == "affine" and encoded.bits == 8:
            assert encoded.scale is not None
            zero = encoded.zero_point if encoded.zero_point is not None else np.zeros_like(encoded.scale)
            axis = next((i for i, extent in enumerate(encoded.scale.shape) if extent > 1), 0)
            axis = next((i for i, extent in enumerate(zero.shape) if extent > 1), axis)
            shape = encoded.scale.shape if encoded.scale.size > 1 else zero.shape
            lines = [np.broadcast_to(part, shape).reshape(-1) for part in (encoded.scale, zero)]
            kind = encoded.codes.dtype
            return mil.op(
                "constexpr_affine_dequantize",
                name,
                quantized_data=np.ascontiguousarray(encoded.codes),
                zero_point=_scalar_or_line(lines[1].astype(kind)),
                scale=_scalar_or_line(lines[0].astype(np.float16)),
                axis=axis,
            )
        if encoded.form == "palette":
            assert encoded.table is not None
            codes = mil.sub_byte(encoded.codes, encoded.bits, signed=False)
            settings = {"vector_axis": encoded.vector_axis} if encoded.table.shape[-1] > 1 else {}
            table = encoded.table.astype(np.float16)
            if encoded.scale is None:
                return mil.op("constexpr_lut_to_dense", name, indices=codes, lut=table, **settings)
            looked_up = mil.op("constexpr_lut_to_dense", f"{name}_table", indices=codes, lut=table, **settings)
            factor = encoded.scale.astype(np.float16)
            return mil.op("constexpr_blockwise_shift_scale", name, data=looked_up, scale=factor)
        if encoded.form == "sparse":
            assert encoded.mask is not None
            mask = mil.sub_byte(encoded.mask.astype(np.uint8), 1, signed=False)
            kept = encoded.decode(np.float16)[encoded.mask]  # places in a table are written as the numbers themselves
            return mil.op("constexpr_sparse_to_dense", name, nonzero_data=kept, mask=mask)
        if encoded.form in FP8:
            return mil.constant(encoded.decode(np.float16), name)  # the file format has no such constant
        assert encoded.scale is not None
        signed = encoded.codes.dtype.kind == "i"
        settings = {}
        if encoded.zero_point is not None:
            settings["offset"] = mil.sub_byte(encoded.zero_point.astype(encoded.codes.dtype), encoded.bits, signed)
        codes = mil.sub_byte(encoded.codes, encoded.bits, signed)
        return mil.op(
            "constexpr_blockwise_shift_scale", name, data=codes, scale=encoded.scale.astype(np.float16), **settings
        )

    def _finish(self, function: Any) -> None:
        """Outputs under their names; the new value of a state goes into the state."""
        state_of = {value: name for name, value in self.states.items()}
        port_of = {self.called[port.uid]: self.own[port.uid] for port in self.graph.inputs}
        handed = []
        for node in self.graph.outputs:
            name, value = self.own[node.uid], self.value(node)
            state = state_of.get(self.called[node.uid])
            if state is not None:
                port = function.inputs[port_of[state]]
                self.mil.op("coreml_update_state", f"{name}_after", state=port, value=value)
            elif value.name != name or node.definition.leaf:
                handed.append(self.mil.op("identity", self._name(name), x=value))
            else:
                handed.append(value)
        if not handed:
            raise ExportError(
                "model: all outputs are states, and Core ML needs a result. Add an output that is not a state."
            )
        function.set_outputs(handed)

    def _save(self, function: Any, file: Path) -> None:
        """The package in place of an old one, as a unit, and the same bytes whenever it is written."""
        with written_folder(file) as fresh:
            package = fresh / file.name
            self.mil.save(function, package)
            fix_identifiers(package)
            for entry in package.iterdir():
                entry.rename(fresh / entry.name)
            package.rmdir()


def fix_identifiers(package: Path) -> None:
    """coremltools draws the identifiers of a package's parts anew each time; here they follow from their paths."""
    manifest = package / "Manifest.json"
    document = json.loads(manifest.read_bytes())
    items: dict[str, Any] = document["itemInfoEntries"]
    fixed = {
        old: str(uuid.uuid5(uuid.NAMESPACE_URL, f"aneforge:{item['path']}")).upper() for old, item in items.items()
    }
    document["itemInfoEntries"] = dict(sorted((fixed[old], item) for old, item in items.items()))
    document["rootModelIdentifier"] = fixed[document["rootModelIdentifier"]]
    manifest.write_bytes(json.dumps(document, indent=4).encode("utf-8"))


def _scalar_or_line(values: np.ndarray) -> Any:
    return values[0] if values.size == 1 else values
