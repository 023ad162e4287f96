# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Neural networks for tests, built with coremltools' own builder."""

from __future__ import annotations

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
    from coremltools.models import datatypes
    from coremltools.models.neural_network import NeuralNetworkBuilder


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).integers(-16, 17, shape) / 8).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return np.abs(numbers(*shape)) + np.float32(0.25)


def network(
    folder: Path,
    build: Callable[[Any], None],
    inputs: dict[str, tuple[int, ...]],
    output: Any,
    exact: bool,
    **more: Any,
) -> Path:
    """A saved network; ``output`` is a shape, or None where the file does not say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ports = [(name, datatypes.Array(*shape)) for name, shape in inputs.items()]
        told = output if isinstance(output, list) else [("y", output)]
        outputs = [(name, None if shape is None else datatypes.Array(*shape)) for name, shape in told]
        builder = NeuralNetworkBuilder(ports, outputs, disable_rank5_shape_mapping=exact, **more)
        build(builder)
        place = folder / "model.mlmodel"
        ct.models.utils.save_spec(builder.spec, str(place))
    return place


@dataclass
class Case:
    layer: str
    build: Callable[[Any], None]
    feeds: list[np.ndarray]
    expected: Callable[..., Any]
    exact: bool
    outputs: int


CASES: list[Any] = []


def case(
    layer: str, build: Callable[[Any], None], *feeds: np.ndarray, expected: Any, exact: bool = False, outputs: int = 1
) -> None:
    number = sum(each.values[0].layer == layer for each in CASES)
    made = Case(layer, build, list(feeds), expected, exact, outputs)
    CASES.append(pytest.param(made, id=f"{layer}-{number}"))
