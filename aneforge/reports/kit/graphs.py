"""The graph of an experiment, built from what ``experiments.json`` says: steps, with weights and inputs as recipes."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.errors import DataError
from aneforge.graph.codecs import encode
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.ops import contraction, layers, norm, quantised, sampling, shape, spatial
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor
from aneforge.sim.inputs import drawn_sample
from aneforge.sim.tables import knots_of

Array = np.ndarray
_OPERATORS = {"add": operator.add, "mul": operator.mul, "real_div": operator.truediv}
_MODULES = (contraction, layers, spatial, shape, norm, sampling, quantised)


def with_case(record: Any, case: Mapping[str, Any]) -> Any:
    """A part of a record with ``$name`` replaced by what one case says."""
    if isinstance(record, str):
        return case[record[1:]] if record.startswith("$") else record
    if isinstance(record, Mapping):
        return {name: with_case(part, case) for name, part in record.items()}
    if isinstance(record, Sequence):
        return [with_case(part, case) for part in record]
    return record


def values_of(recipe: Mapping[str, Any], seed: int, name: str) -> Array:
    """The fp16 numbers of a recipe in its shape, the same on every machine."""
    shape = recipe["shape"]
    size = math.prod(shape)
    if "fill" in recipe:
        numbers = np.full(size, recipe["fill"], np.float16)
    elif "values" in recipe:
        numbers = np.resize(np.array([float(value) for value in recipe["values"]], np.float16), size)
    elif "rows" in recipe:  # one number a row
        numbers = np.repeat(np.resize(np.array(recipe["rows"], np.float16), size // shape[-1]), shape[-1])
    elif "planes" in recipe:  # one number a channel
        area = math.prod(shape[2:])
        numbers = np.repeat(np.resize(np.array(recipe["planes"], np.float16), size // area), area)
    elif "triples" in recipe:  # +B, -B, 1 along each row, with another B in each
        rows = [np.resize(np.array([b, -b, 1], np.float16), shape[-1]) for b in recipe["triples"]]
        numbers = np.resize(np.concatenate(rows), size)
    elif "halves" in recipe:  # a number in the first half of each row, its negative in the second
        half = np.full(shape[-1] // 2, recipe["halves"], np.float16)
        numbers = np.resize(np.concatenate([half, -half]), size)
    elif "single" in recipe:  # one number at the start of each row or channel, then zeros
        numbers = np.zeros((size // recipe["every"], recipe["every"]), np.float16)
        numbers[:, 0] = recipe["single"]
        numbers = numbers.reshape(-1)
    elif "knots" in recipe:
        numbers = np.resize(_at_knots(*recipe["knots"]), size)
    elif "spread" in recipe:
        low, high = recipe["spread"]
        numbers = np.linspace(low, high, size).astype(np.float16)
    elif "normal" in recipe:
        port = graph_input(shape, name=name)
        drawn = drawn_sample(Graph.of(port), seed)[name].reshape(-1)
        numbers = (drawn.astype(np.float64) * recipe["normal"]).astype(np.float16)
    elif "repeated" in recipe:  # a short line again and again: large in memory, and small in an archive
        line = np.round(np.sin(np.arange(251, dtype=np.float64)) * 64) / 64
        numbers = np.resize((line * recipe["repeated"]).astype(np.float16), size)
    else:
        raise DataError(f"experiments.json: {name}: its recipe must say its numbers")
    return numbers.reshape(shape)


def _at_knots(function: str, between: int) -> Array:
    """Every knot of an activation, ``between`` numbers from each to the next, and as many steps beyond both ends."""
    table = knots_of(function)
    steps = (len(table.values) - 1) * between
    step = (table.last - table.first) / steps
    places = table.first + step * np.arange(-4 * between, steps + 4 * between + 1)
    mirrored = np.concatenate([places, -places]) if table.first == 0 else places
    return mirrored.astype(np.float16)


def _stored(recipe: Mapping[str, Any], seed: int, name: str) -> Any:
    numbers = values_of(recipe, seed, name)
    if "stored" not in recipe and "scale" not in recipe:
        return numbers
    if "scale" in recipe:  # whole numbers of so many bits
        bits = recipe["bits"]
        codes = np.clip(np.round(numbers.astype(np.float64)), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1).astype(np.int8)
        return Encoded.affine(codes, recipe["scale"], bits=bits)
    return encode(numbers.astype(np.float32), recipe["stored"])


def built(record: Mapping[str, Any], seed: int = 0) -> Graph:
    """The graph of one case: its inputs, its weights, and its steps in their order."""
    known: dict[str, Any] = {}
    for name, recipe in record["inputs"].items():
        known[name] = graph_input(recipe["shape"], name=name)
    for name, recipe in record.get("weights", {}).items():
        known[name] = _stored(recipe, seed, name)
    for result, op, *operands in record["steps"]:
        options = operands.pop() if operands and isinstance(operands[-1], Mapping) else {}
        read = [_named(operand, known) for operand in operands]
        value = _function(op)(*read, **{key: _named(option, known) for key, option in options.items()})
        known[result] = value.named(result) if isinstance(value, Tensor) else value
    outputs = record.get("outputs", [record["steps"][-1][0]])
    return Graph.of([known[name] for name in outputs])


def _named(operand: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(operand, list) and operand and all(isinstance(part, str) for part in operand):
        return [_named(part, known) for part in operand]
    return known.get(operand, operand) if isinstance(operand, str) else operand


def _function(name: str) -> Any:
    if name.startswith("_"):
        raise DataError(f"experiments.json: {name}: must be the name of an op")
    if name in _OPERATORS:
        return _OPERATORS[name]
    known = (getattr(module, name, None) for module in _MODULES)
    ours = (function for function in known if getattr(function, "__module__", "").startswith("aneforge."))
    return next(ours, getattr(Tensor, name, None))


def inputs_of(record: Mapping[str, Any], seed: int = 0) -> dict[str, Array]:
    """The numbers of every input by name."""
    return {name: values_of(recipe, seed, name) for name, recipe in record["inputs"].items()}
