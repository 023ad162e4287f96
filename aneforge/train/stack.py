"""A stack of equal layers, trained with two programs whatever its depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.errors import ArgumentError
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

    ``layer_fn(params, x)`` builds one layer: a tensor of ``io_shape`` from a list of parameters and another tensor.
    ``example_params`` gives their shapes. One program runs a layer forward, another runs it again and then backward;
    the parameters are inputs of both, so that any number of layers needs two programs. Between the passes only the
    input of each layer is kept; what lies inside a layer is computed again.
    """

    def __init__(
        self,
        layer_fn: Callable[[list[Tensor], Tensor], Tensor],
        example_params: Sequence[Any],
        io_shape: Sequence[int],
        *,
        target: str | int | Target | None = None,
        mode: str = "exact",
    ) -> None:
        x = graph_input(io_shape, name="x")
        params = [_like(example, number) for number, example in enumerate(example_params)]
        out = layer_fn(params, x)
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

    @property
    def programs(self) -> int:
        """Programs that were compiled: as many for a thousand layers as for one."""
        return 2

    def forward(self, layers_params: Sequence[Layer], x0: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The result of all layers, and the input of each, which ``backward`` takes."""
        value = _of_shape(x0, self.shape, "x0")
        checkpoints: list[np.ndarray] = []
        for number, layer in enumerate(layers_params):
            checkpoints.append(value)
            value = self._run(self._forward, {"x": value, **self._named(self._checked(layer, number))})[0]
        if not checkpoints:
            raise ArgumentError("layers_params", "the list is empty. Give the parameters of at least one layer.")
        return value.astype(np.float32), checkpoints

    def backward(
        self, layers_params: Sequence[Layer], checkpoints: Sequence[np.ndarray], g_out: np.ndarray
    ) -> tuple[list[list[np.ndarray]], np.ndarray]:
        """Layer by layer the gradients of its parameters, and that of the stack's input, from that of its result.

        They carry whatever loss scale ``g_out`` does. ``checkpoints`` are those that ``forward`` gave.
        """
        layers = [self._checked(layer, number) for number, layer in enumerate(layers_params)]
        if len(checkpoints) != len(layers):
            raise ArgumentError(
                "checkpoints", f"{len(checkpoints)} for {len(layers)} layers. Pass those that forward gave."
            )
        flowing = _of_shape(g_out, self.shape, "g_out")
        parts: list[list[np.ndarray]] = []
        for x, layer in zip(reversed(checkpoints), reversed(layers), strict=True):
            results = self._run(self._backward, {"x": x, "gradient": flowing, **self._named(layer)})
            parts.append([part.astype(np.float32) for part in results[:-1]])
            flowing = results[-1]
        return parts[::-1], flowing.astype(np.float32)

    def release(self) -> None:
        """Give back the memory of both programs; the stack cannot run any more."""
        self._forward.release()
        self._backward.release()

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
            raise ArgumentError("layers_params", f"layer {number} has parameters of {shapes}; expected {expected}.")
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
