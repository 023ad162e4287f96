"""A stack of equal layers, trained with two programs whatever its depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.formats.arguments import chip_of
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.ops.leaf import parameter
from aneforge.graph.tensor import Tensor
from aneforge.study.model import Model, build
from aneforge.train.backward import backward_from

Layer = Sequence[np.ndarray]
"""The values of one layer's parameters."""


class CheckpointedStack:
    """Layers of one kind behind each other, compiled once.

    ``layer_fn(x, params)`` builds one layer: a tensor of ``io_shape`` from another, and a list of parameters.
    ``example_params`` gives their shapes. One program runs a layer forward, another runs it again and then backward;
    the parameters are inputs of both, so that any number of layers needs two programs. Between the passes only the
    input of each layer is kept; what lies inside a layer is computed again.
    """

    def __init__(
        self,
        layer_fn: Callable[[Tensor, list[Tensor]], Tensor],
        example_params: Sequence[Any],
        io_shape: Sequence[int],
        *,
        target: str | int | Target | None = None,
        mode: str = "exact",
    ) -> None:
        x = graph_input(io_shape, name="x")
        params = [_like(example, number) for number, example in enumerate(example_params)]
        out = layer_fn(x, params)
        if not isinstance(out, Tensor) or out.shape != x.shape:
            given = f"a tensor of {list(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
            raise ArgumentError("layer_fn", f"it gave {given}; expected a tensor of io_shape {list(x.shape)}.")
        self.shape: tuple[int, ...] = x.shape
        self.target: Target = chip_of(target)
        self._params = params
        gradient = graph_input(out.shape, name="gradient")
        parts = backward_from(gradient, out, [*params, x])
        self._forward: Model = build(out, self.target, mode)
        self._backward: Model = build([parts[tensor] for tensor in (*params, x)], self.target, mode)
        self._kept: list[tuple[np.ndarray, Layer]] = []

    @property
    def programs(self) -> int:
        """Programs that were compiled: as many for a thousand layers as for one."""
        return 2

    def forward(self, x: np.ndarray, layers: Sequence[Layer]) -> np.ndarray:
        """The result of all layers, and what ``backward`` needs: the input of each."""
        value = _of_shape(x, self.shape, "x")
        kept: list[tuple[np.ndarray, Layer]] = []
        for number, layer in enumerate(layers):
            checked = self._checked(layer, number)
            kept.append((value, checked))
            value = self._run(self._forward, {"x": value, **self._named(checked)})[0]
        if not kept:
            raise AneforgeError("layers: the list is empty. Give the parameters of at least one layer.")
        self._kept = kept
        return value.astype(np.float32)

    def backward(self, gradient: np.ndarray) -> tuple[np.ndarray, list[list[np.ndarray]]]:
        """The gradient of the stack's input and, layer by layer, of its parameters, from that of its result.

        They carry whatever loss scale ``gradient`` does. Uses what the last ``forward`` kept.
        """
        if not self._kept:
            raise AneforgeError("backward: nothing was run forward. Call forward first.")
        flowing = _of_shape(gradient, self.shape, "gradient")
        parts: list[list[np.ndarray]] = []
        for x, layer in reversed(self._kept):
            results = self._run(self._backward, {"x": x, "gradient": flowing, **self._named(layer)})
            parts.append([part.astype(np.float32) for part in results[:-1]])
            flowing = results[-1]
        return flowing.astype(np.float32), parts[::-1]

    def _named(self, layer: Layer) -> dict[str, np.ndarray]:
        return {str(param.name): value for param, value in zip(self._params, layer, strict=True)}

    @staticmethod
    def _run(model: Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        taken = {port.name for port in model.program.inputs}  # a gradient may not depend on every input
        return list(model.run({name: value for name, value in feeds.items() if name in taken}).outputs.values())

    def _checked(self, layer: Layer, number: int) -> list[np.ndarray]:
        arrays = [np.asarray(array) for array in layer]
        shapes, expected = [array.shape for array in arrays], [param.shape for param in self._params]
        if shapes != expected:
            raise ArgumentError("layers", f"layer {number} has parameters of {shapes}; expected {expected}.")
        return arrays


def _like(example: Any, number: int) -> Tensor:
    """A parameter of the same shape and kind, under a name of this stack's own."""
    if isinstance(example, Tensor):
        if example.op != "parameter" or example.weight is None:
            raise ArgumentError("example_params", f"number {number} is a {example.op}; pass arrays or parameters.")
        return parameter(example.weight.array, name=f"param{number}", kernel=example.attrs.get("kernel"))
    return parameter(example, name=f"param{number}")


def _of_shape(array: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    value = np.asarray(array)
    if value.shape != shape:
        raise ArgumentError(name, f"it has shape {list(value.shape)}; the stack was built for {list(shape)}.")
    return value
