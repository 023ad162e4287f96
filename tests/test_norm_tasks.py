"""Softmax and layer norms as tasks: what the registers say is the softmax or the norm, in every generation."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest

import aneforge as af
from aneforge.codegen import banks
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import read_container
from aneforge.codegen.decoding import decode
from aneforge.codegen.describe import tree
from aneforge.codegen.dialect import resolved, written_generations
from aneforge.codegen.emission import emit
from aneforge.codegen.tasks import Task
from aneforge.study.model import Model

rng = np.random.default_rng(3838)
SHAPES = [(1, 8, 1, 64), (1, 1, 1, 96), (1, 24, 6, 10), (1, 1, 12, 40), (1, 64, 8, 8), (1, 40, 1, 33)]


def halves(*shape):
    return (0.7 * rng.normal(size=shape)).astype(np.float16)


def compiled(outputs, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return af.compile(outputs, target=target, _check_precision=False)


def from_registers(model, feeds):
    """What the tasks give, without the text beside them; and the container."""
    written = emit(model.program)
    assert written.record is not None
    assert not written.record.not_expressed, str(written.record)
    container = read_container(written.to_bytes())
    program = decode(container, registers_only=True)
    (value,) = Model(model.graph, program).run(feeds).outputs.values()
    return value, container


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("generation", written_generations())
def test_registers_of_a_softmax_are_a_softmax(generation, shape):
    x = halves(*shape)
    for axis in (1, 2, 3):
        if shape[axis] == 1:
            continue
        model = compiled(af.input(shape, name="x").softmax(axis).named("y"), generation)
        value, _ = from_registers(model, {"x": x})
        powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
        assert np.abs(value - powers / powers.sum(axis, keepdims=True)).max() < 4e-3


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("generation", written_generations())
def test_registers_of_a_norm_are_a_norm(generation, shape):
    x, width, channels = halves(*shape), shape[3], shape[1]
    ones, zeros = np.ones(width, np.float16), np.zeros(width, np.float16)
    model = compiled(af.input(shape, name="x").layer_norm(ones, zeros).named("y"), generation)
    value, _ = from_registers(model, {"x": x})
    assert np.abs(value - white(x, 3)).max() < 0.03
    if channels == 1:
        return
    gain, shift = halves(channels) + 1, halves(channels)
    model = compiled(af.input(shape, name="x").channel_layer_norm(gain, shift).named("y"), generation)
    value, _ = from_registers(model, {"x": x})
    wanted = white(x, 1) * gain.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)
    assert np.abs(value - wanted).max() < 0.04


def white(x, axis):
    x = x.astype(np.float64)
    centred = x - x.mean(axis, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis, keepdims=True) + 1e-5)


def test_a_softmax_runs_as_the_op_does_with_its_text_beside():
    """The tasks round between themselves; our own files have the text, and give the simulator's bits."""
    model = compiled(af.input((1, 8, 4, 16), name="x").softmax(1).named("y"), "h13")
    x = halves(1, 8, 4, 16)
    (expected,) = model.run({"x": x}).outputs.values()
    again = decode(read_container(emit(model.program).to_bytes()))
    (found,) = Model(model.graph, again).run({"x": x}).outputs.values()
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("meaning", ["scratch.source.base", "scratch.second.base"])
def test_a_task_that_reads_elsewhere_is_refused(meaning):
    model = compiled(af.input((1, 8, 4, 16), name="x").softmax(1).named("y"), "h13")
    container = read_container(emit(model.program).to_bytes())
    known = resolved("h13", meaning)
    assert known is not None
    register = known[0]
    task = container.tasks[1]
    words = [value + 0x40 if address == register.address else value for address, value in task.writes]
    body, place = list(task.words[len(task.header_words) :]), 0
    for command in task.commands:
        size = len(command.values)
        body[place + 1 : place + 1 + size] = words[:size]
        words, place = words[size:], place + 1 + size
    container.tasks[1] = Task("h13", task.header_words, body, task.offset)
    with pytest.raises(ContainerError, match="where no task wrote such a tensor"):
        decode(container, registers_only=True)


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_read_together_lie_on_different_banks(seed):
    """A source that both engines read, and a copy that is read a row an image: no two of the rows share a bank."""
    draw = np.random.default_rng(seed)
    line = 16 * int(draw.integers(1, 300))
    for across in (False, True):
        pad = banks.stay_pad(line, across)
        rows = 16 if across else 4
        places = sorted((row * (line + pad) // banks.BANK) % banks.BANKS for row in range(rows))
        assert all(before != after for before, after in pairwise(places))


@pytest.mark.parametrize("target", ["h13", "h14", "h17"])
@pytest.mark.parametrize("seed", range(6))
def test_values_that_are_alive_together_lie_apart(seed, target):
    """No task writes over something that a later task of the same layer reads."""
    draw = np.random.default_rng(100 + seed)
    shape = (1, int(draw.integers(1, 40)), int(draw.integers(1, 9)), int(draw.integers(2, 70)))
    axes = [axis for axis in (1, 2, 3) if shape[axis] > 1]
    model = compiled(af.input(shape, name="x").softmax(int(draw.choice(axes))).named("y"), target)
    value, _ = from_registers(model, {"x": halves(*shape)})
    assert np.isfinite(value).all()


def test_inspect_names_what_the_tasks_of_a_softmax_do():
    model = compiled(af.input((1, 8, 1, 64), name="x").softmax(1).named("y"), "h13")
    lines = [line.strip() for line in tree(emit(model.program)) if line.strip().startswith("operation")]
    assert [line.split(",")[0] for line in lines] == [
        "operation largest of all channels",
        "operation sub",
        "operation bypass",
        "operation sum of all channels",
        "operation mul",
    ]
    model = compiled(af.input((1, 1, 1, 64), name="x").softmax(3).named("y"), "h14")
    text = "\n".join(tree(emit(model.program)))
    assert "operation largest over the rows" in text
    assert "operation sum over the rows, reciprocal" in text
