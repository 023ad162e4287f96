# pyright: reportMissingImports=false
"""Core AI assets for the tests: built by the package's own authoring API, or from its text, and run on its CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

import aneforge as af

A: Any = pytest.importorskip("coreai.authoring")
ir: Any = pytest.importorskip("coreai._compiler.ir")

Ports = dict[str, tuple[tuple[int, ...], str]]
Body = Callable[..., Any]
Module, TensorSpec, AIProgram = A.Module, A.TensorSpec, A.AIProgram


def u32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


def s32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def f32(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def constant(values: Any, dtype: Any = None) -> Any:
    from coreai.authoring.constant import constant as made

    return made(values, dtype=dtype)


# Building assets.


def _graph(module: Any, name: str, body: Body, inputs: Ports, outputs: list[Any], **settings: Any) -> Any:
    """A graph from a function of any number of arguments: the decorator reads names and types of real parameters."""
    scope: dict[str, Any] = {"body": body}
    exec(f"def {name}({', '.join(inputs)}):\n    return body({', '.join(inputs)})", scope)  # noqa: S102 - names from the tests
    function = scope[name]
    hints = [Annotated[A.Value, each] for each in outputs]
    told: dict[str, Any] = {
        label: Annotated[A.Value, TensorSpec(shape, getattr(A, dtype), name=label)]
        for label, (shape, dtype) in inputs.items()
    }
    told["return"] = hints[0] if len(hints) == 1 else tuple.__class_getitem__(tuple(hints))
    function.__annotations__ = told
    with module:
        return A.graph(function, **settings)


def _types(body: Body, inputs: Ports) -> list[Any]:
    """What a body gives, found by building it in a module that is thrown away."""
    found: list[Any] = []

    def probe(*values: Any) -> Any:
        made = body(*values)
        for place, each in enumerate(made if isinstance(made, (list, tuple)) else [made]):
            kind = ir.RankedTensorType(each._to_mlir().type)
            found.append(TensorSpec(tuple(kind.shape), kind.element_type, name=f"y{place}"))
        return values[0]

    shape, dtype = next(iter(inputs.values()))
    _graph(Module.create(), "probe", probe, inputs, [TensorSpec(shape, getattr(A, dtype), name="y")])
    return found


def build(path: Path, body: Body, inputs: Ports) -> Any:
    module = Module.create()
    with module._context:
        outputs = _types(body, inputs)
        _graph(module, "main", body, inputs, outputs)
    return AIProgram(module).save_asset(path / "model.aimodel")


def from_text(path: Path, text: str) -> Any:
    context = A.Context()._mlir_context
    with context, ir.Location.unknown():
        module = ir.Module.parse(text, context)
    return AIProgram._from_mlir_module(module).save_asset(path / "model.aimodel")


def run(asset: Any, feeds: dict[str, np.ndarray], state: dict[str, np.ndarray] | None = None) -> dict:
    from coreai.runtime import NDArray

    async def go() -> dict[str, np.ndarray]:
        async with asset.executable() as model:
            function = model.load_function("main")
            held = {name: NDArray(value) for name, value in (state or {}).items()}
            found = await function({name: NDArray(value) for name, value in feeds.items()}, state=held)
            for name, value in held.items():
                (state or {})[name] = np.array(value.numpy())
            return {name: np.array(value.numpy()) for name, value in found.items()}

    return asyncio.run(go())


NUMPY = {"float32": np.float32, "float16": np.float16, "bool_": np.bool_, "uint8": np.uint8, "int32": np.int32}


def numbers(inputs: Ports, low: float = -2.0, high: float = 2.0, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for name, (shape, dtype) in inputs.items():
        if dtype == "bool_":
            found[name] = rng.random(shape) < 0.5
        elif dtype == "uint8":
            found[name] = rng.integers(0, 256, shape).astype(np.uint8)
        else:
            found[name] = rng.uniform(low, high, shape).astype(np.float16).astype(NUMPY[dtype])
    return found


def compare(path: Path, body: Body, inputs: Ports, low: float = -2.0, high: float = 2.0, atol: float = 2e-3) -> Any:
    """The graph that is read gives what Core AI's own CPU gives."""
    asset = build(path, body, inputs)
    feeds = numbers(inputs, low, high)
    wanted = run(asset, feeds)
    graph = af.load(asset.path)
    held = {each.name for each in graph.inputs}
    found = af.evaluate(
        graph, {name: value.reshape(value.shape or (1,)) for name, value in feeds.items() if name in held}
    )
    results = [found] if isinstance(found, np.ndarray) else found
    labels = [each.name for each in graph.outputs]
    assert sorted(labels) == sorted(wanted)
    for label, result in zip(labels, results, strict=True):
        value = np.asarray(wanted[label]).astype(np.float64)
        assert np.asarray(result).shape == (value.shape or (1,)), label
        np.testing.assert_allclose(
            np.asarray(result).astype(np.float64).reshape(value.shape), value, rtol=2e-3, atol=atol, err_msg=label
        )
    return graph


def random(*shape: int, seed: int = 1, scale: float = 0.3) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float16).astype(np.float32)


def packed(codes: np.ndarray, dtype: Any, bits: int) -> Any:
    """Several numbers in a byte, as Core AI's runtime reads them; its authoring API leaves that to its callers."""
    from coreai._compiler.dialects._coreai_ops_gen import ConstantOp

    lines = codes.reshape(-1, 8 // bits).astype(np.uint8) & ((1 << bits) - 1)
    data = np.bitwise_or.reduce(lines << np.arange(0, 8, bits, dtype=np.uint8), axis=1).astype(np.uint8)
    kind = TensorSpec(codes.shape, dtype)._to_mlir_type()
    return A.Value._from_mlir(ConstantOp(value=ir.DenseResourceElementsAttr.get_from_buffer(data, "w", kind)).result)


X: Ports = {"x": ((2, 3, 4), "float32")}
