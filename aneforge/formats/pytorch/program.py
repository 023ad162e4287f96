# pyright: reportMissingImports=false
"""Turn an exported program into records: weights, ports, states and the calls of its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from aneforge.errors import LoadError, first_line
from aneforge.formats.importer.importer import Importer
from aneforge.formats.importer.op import FilePort
from aneforge.formats.pytorch.language import Torch
from aneforge.formats.pytorch.naming import ModuleNames
from aneforge.formats.pytorch.sizes import Sizes
from aneforge.formats.records import Function, Type, ValueType
from aneforge.graph.graph import Graph

_FLOATS = {"float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "bf16"}


def import_program(
    program: Any,
    what: str,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    names: Sequence[str] | Mapping[str, str] | None,
    release: Callable[[], None] | None = None,
) -> Graph:
    return _Program(program, what, dims, fixed, names, release).graph()


class _Program:
    def __init__(
        self,
        program: Any,
        what: str,
        dims: Mapping[str, int],
        fixed: Mapping[str, Any],
        names: Sequence[str] | Mapping[str, str] | None,
        release: Callable[[], None] | None,
    ) -> None:
        self.program, self.what, self.fixed = program, what, dict(fixed)
        self.sizes = Sizes(what, dims)
        self.language = Torch(self.sizes, ModuleNames(), release)
        if isinstance(names, Mapping):
            self.language.renamed = dict(names)
        elif names is not None:
            self.language.output_names = list(names)
        self.inputs: list[tuple[str, Type]] = []
        self.ports: dict[str, FilePort] = {}
        self.constants: dict[str, Any] = {}

    def graph(self) -> Graph:
        module, signature = self.program.graph_module, self.program.graph_signature
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        user = [node for node in placeholders if node.name in signature.user_inputs]
        self.sizes.bind_inputs([(node.name, node.meta.get("val")) for node in user])
        absent = [name for name in self.fixed if name not in {node.name for node in user}]
        if absent:
            inputs = ", ".join(node.name for node in user) or "none"
            raise LoadError(f"{self.what}: no input {absent[0]!r} to fix; the inputs are {inputs}")
        for node, spec in zip(placeholders, signature.input_specs, strict=True):
            self._leaf(node, spec)
        block = self.language.block(module)
        results, states = self._results(block.outputs, signature.output_specs)
        block.outputs = [*results, *states]
        function = Function(self.inputs, block, states=dict(states))
        importer = Importer(self.what, self.language, function, ports=self.ports, constants=self.constants)
        return importer.graph()

    def _results(self, outputs: Sequence[str], specs: Sequence[Any]) -> tuple[list[str], dict[str, str]]:
        """Return the names of the user's outputs, and of the new values of states."""
        results: list[str] = []
        states: dict[str, str] = {}
        for name, spec in zip(outputs, specs, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                if not (isinstance(spec.arg, ConstantArgument) and spec.arg.value is None):
                    results.append(name)
            elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                states[name] = self.language.renamed.get(str(spec.target), str(spec.target))
        return results, states

    # Inputs.

    def _leaf(self, node: Any, spec: Any) -> None:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            if spec.target in self.program.graph_signature.buffers_to_mutate.values():
                self._port(node, spec.target)
                return
            stored = self.program.state_dict if spec.target in self.program.state_dict else self.program.constants
            if spec.target not in stored:
                raise LoadError(
                    f"{self.what}: the weight {spec.target!r} is missing; save the program again with its weights"
                )
            self.constants[node.name] = stored[spec.target].detach()
        elif spec.kind is not InputKind.USER_INPUT:
            raise LoadError(f"{self.what}: input {node.name!r} is a {spec.kind.name.lower()}, which is not supported")
        elif node.name in self.fixed:
            self.constants[node.name] = self._fixed(node.name, self.fixed[node.name], node.meta.get("val"))
        elif isinstance(spec.arg, ConstantArgument):
            self.constants[node.name] = spec.arg.value
        elif not isinstance(spec.arg, TensorArgument):
            how = f"give it with fixed={{{node.name!r}: ...}}"
            raise LoadError(f"{self.what}: input {node.name!r} is a number, not a tensor; {how}")
        else:
            self._port(node, node.name)

    def _fixed(self, name: str, value: Any, example: Any) -> Any:
        """Return a fixed input in the type and shape that the program expects."""
        if not isinstance(example, torch.Tensor):
            number = np.asarray(value).reshape(-1)[0].item()
            self.sizes.bind(example, number)
            return number
        shape = self.sizes.shape(example.shape)
        try:
            tensor = torch.as_tensor(np.asarray(value)).to(example.dtype)
            return tensor.expand(shape) if tensor.ndim == 0 else tensor.reshape(shape)
        except (RuntimeError, TypeError, ValueError) as error:
            raise LoadError(
                f"{self.what}: fixed input {name!r} must have shape {list(shape)}: {first_line(error)}"
            ) from None

    def _port(self, node: Any, name: str) -> None:
        example = node.meta["val"]
        kind = str(example.dtype).removeprefix("torch.")
        shape = self.sizes.shape(example.shape)
        self.inputs.append((node.name, ValueType(_FLOATS.get(kind, kind), shape)))
        self.ports[node.name] = FilePort(label=self.language.names.unique(self.language.renamed.get(name, name)))
