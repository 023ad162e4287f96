# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Core ML models for tests, built with coremltools' own builders, which work on any machine."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    ct = pytest.importorskip("coremltools")
    logging.disable(logging.NOTSET)
    from coremltools.converters.mil import Builder as mb  # noqa: N813 - the name that everybody uses
    from coremltools.converters.mil.mil import types

IOS15, IOS16, IOS17, IOS18 = ct.target.iOS15, ct.target.iOS16, ct.target.iOS17, ct.target.iOS18


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Small multiples of 1/8: fp16 holds them, and sums of some of them."""
    return (np.random.default_rng(seed).integers(-16, 17, shape) / 8).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return np.abs(numbers(*shape)) + np.float32(0.25)


def whole(*shape: int, below: int = 4) -> np.ndarray:
    return np.random.default_rng(1).integers(0, below, shape).astype(np.int32)


def package(
    folder: Path, build: Callable[..., Any], feeds: list[np.ndarray], target: Any = IOS17, **settings: Any
) -> Path:
    """A saved ML program of a function of Core ML's builder."""
    kinds = {"f": types.fp32, "i": types.int32, "b": types.bool}
    specs = [mb.TensorSpec(each.shape, dtype=kinds[each.dtype.kind]) for each in feeds]
    program = mb.program(input_specs=specs, opset_version=target)(_of_arity(build, len(feeds)))
    place = folder / "model.mlpackage"
    saved(program, place, target, **settings)
    return place


def _of_arity(build: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A function with as many arguments as there are inputs, and no defaults: the builder counts them."""

    def one(x: Any) -> Any:
        return build(x)

    def two(x: Any, y: Any) -> Any:
        return build(x, y)

    def three(x: Any, y: Any, z: Any) -> Any:
        return build(x, y, z)

    def four(x: Any, y: Any, z: Any, w: Any) -> Any:
        return build(x, y, z, w)

    return (one, two, three, four)[count - 1]


def saved(program: Any, place: Path, target: Any = IOS17, **settings: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"compute_precision": ct.precision.FLOAT32, "pass_pipeline": ct.PassPipeline.EMPTY} | settings
        model = ct.convert(
            program, convert_to="mlprogram", minimum_deployment_target=target, skip_model_load=True, **settings
        )
        model.save(str(place))


def inferred(build: Callable[..., Any], feeds: list[np.ndarray], target: Any) -> list[np.ndarray]:
    """What coremltools itself computes when the operands are constants."""
    found: list[np.ndarray] = []

    def body(x: Any) -> Any:
        made = build(*(mb.const(val=each) for each in feeds))
        for each in made if isinstance(made, (list, tuple)) else [made]:
            assert each.val is not None, "coremltools has no value inference for this op"
            found.append(np.asarray(each.val))
        return mb.identity(x=x)

    mb.program(input_specs=[mb.TensorSpec((1,))], opset_version=target)(body)
    return found


@dataclass
class Case:
    op: str
    build: Callable[..., Any]
    feeds: list[np.ndarray]
    expected: Callable[..., Any] | None = None
    target: Any = IOS17


CASES: list[Any] = []
"""Filled by the modules of cases."""


def case(op: str, build: Callable[..., Any], *feeds: np.ndarray, expected: Any = None, target: Any = IOS17) -> None:
    number = sum(each.values[0].op == op for each in CASES)
    CASES.append(pytest.param(Case(op, build, list(feeds), expected, target), id=f"{op}-{number}"))


def storage() -> Any:
    """coremltools' own reader and writer of weight files."""
    return importlib.import_module("coremltools.libmilstoragepython")
