"""Programs from their registers and constants alone, as hardware has them: no text beside, for every generation."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from test_emit import as_vendor, halves
from test_vendor_programs import bench, scores

import aneforge as af
from aneforge.codegen.assemble import CallerTensor, Parts, assemble
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import read_container
from aneforge.codegen.decoding import decode
from aneforge.codegen.describe import tree
from aneforge.codegen.dialect import written_generations
from aneforge.codegen.emission import emit
from aneforge.codegen.forms import ActivationTable
from aneforge.codegen.load_commands import ContainerPort
from aneforge.codegen.memory import Layout, Memory
from aneforge.codegen.record import read_debug
from aneforge.codegen.tables import bounds_bytes, bounds_of
from aneforge.study.model import Model

rng = np.random.default_rng(381)
TEXT_BESIDE = ("real_div", "leaky_relu", "softmax", "layer_norm", "unary_log")
"""Records whose tasks round where the op does not: a reciprocal by table, a slope that is a half."""


def compiled(outputs, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return af.compile(outputs, target=target, _check_precision=False)


def has_text(container):
    section = container.section("__debug_info", "__DEBUG")
    rows = read_debug(container.contents(section).data)[0]["layers"]
    return any("text" in row for row in rows if row["task"] is not None)


def result(model, program, feeds):
    again = Model(model.graph, program)
    shaped = {port.name: feeds[port.name].reshape(port.user_shape) for port in program.inputs}
    (value,) = again.run(shaped).outputs.values()
    return value.tobytes()


@pytest.mark.parametrize("generation", written_generations())
def test_published_programs_run_from_their_registers(generation):
    """Every record whose words we write exactly: the words, read back, give the bits of the simulator."""
    count = 0
    for entry in scores(generation):
        record = entry.record
        if not entry.is_exact:
            continue
        model = compiled(bench().graph_of(record["network"], record["target"]), record["target"])
        container = read_container(emit(model.program).to_bytes())
        rounds = any(name in record["id"] for name in TEXT_BESIDE)
        assert has_text(container) == rounds, record["id"]
        feeds = {port.name: halves(*port.user_shape) for port in model.program.inputs}
        program = decode(container, registers_only=True)
        (expected,) = model.run(feeds).outputs.values()
        assert rounds or result(model, program, feeds) == expected.tobytes(), record["id"]
        count += not rounds
    assert count == {"h13": 91, "h14": 67, "h15": 8, "h16": 52, "h17": 43, "h18": 30}[generation]


@pytest.mark.parametrize("target", ["h13", "h14", "h15", "h16", "h17", "h18"])
@pytest.mark.parametrize("channels", [16, 40, 64])
def test_offsets_and_gains_of_channels_are_where_their_task_reads_them(target, channels):
    x = af.input((1, channels, 4, 4), name="x")
    model = compiled((x * halves(1, channels, 1, 1) + halves(1, channels, 1, 1)).named("y"), target)
    container = read_container(emit(model.program).to_bytes())
    assert not has_text(container)
    feeds = {"x": halves(1, channels, 4, 4)}
    (expected,) = model.run(feeds).outputs.values()
    assert result(model, decode(container, registers_only=True), feeds) == expected.tobytes()


def vendor(names=("x", "y")):
    """A program in several tasks that write parts of one tensor, without our debug section."""
    x = af.input((1, 200, 64), name="x")
    model = compiled(af.linear(x, halves(16384, 64)).named("y"), "h13")
    return model, as_vendor(emit(model.program), names)


def test_tasks_that_write_parts_of_one_tensor_are_joined():
    model, bare = vendor()
    assert len(bare.tasks) == 3, "a turn, and two tasks for a mebibyte of weights each"
    program = decode(read_container(bare.to_bytes()))
    assert "concat" in [op.kind for op in program.module.ops]
    feeds = {"x": halves(1, 200, 64)}
    (expected,) = model.run(feeds).outputs.values()
    assert result(model, program, feeds) == expected.tobytes()


def test_outputs_may_have_a_suffix_in_their_bindings():
    _, bare = vendor()
    bound = next(binding for binding in bare.bindings if binding.name == "y")
    text = b"y@output\0"
    bound.payload = bound.payload[: bound.payload.index(b"y\0")] + text + bytes(-len(text) % 8)
    assert [binding.name for binding in bare.bindings if isinstance(binding, ContainerPort)] == ["x", "y@output"]
    (port,) = (port for port in bare.ports if port.role == "output")
    assert bare.port_bar(port) == 5
    assert any("output y" in line and "BAR 5" in line for line in tree(bare))
    assert [port.name for port in decode(bare).outputs] == ["y"]


def test_a_debug_section_of_somebody_else_is_left_alone():
    x = af.input((1, 16, 8, 8), name="x")
    model = compiled(x.sigmoid().named("y"), "h13")
    container = emit(model.program)
    tensors = [CallerTensor(port.name, port.role, port.shape) for port in container.ports]
    parts = Parts("h13", tensors, container.tasks, container.constants, debug=b"somebody else's notes")
    program = decode(read_container(assemble(parts).to_bytes()))
    feeds = {"x": halves(1, 16, 8, 8)}
    (expected,) = model.run(feeds).outputs.values()
    assert result(model, program, feeds) == expected.tobytes()


def test_inspect_says_which_table_how_many_cores_and_where_results_begin():
    x = af.input((1, 16, 8, 8), name="x")
    outputs = [af.minimum(x, 6.0).named("a"), x.sigmoid().named("b"), af.conv(x, halves(4, 16, 1, 1)).named("y")]
    model = compiled(outputs, "h16")
    text = "\n".join(tree(emit(model.program)))
    assert "(at most 6)" in text
    assert "(sigmoid)" in text
    assert "  16 cores" in text
    assert "  4 cores" in text
    parts = "\n".join(tree(vendor()[1]))
    assert "result: BAR 5 (y), offset 0x4000" in parts


def test_what_no_form_has_is_an_error_with_its_word():
    container = emit(compiled(af.input((1, 16, 8, 8), name="x").sigmoid().named("y"), "h17").program)
    task = container.tasks[0]
    place, command = next(
        (number, command)
        for command in task.commands
        for number, address in enumerate(command.places)
        if address == 0x4904
    )
    command.values[place] |= 0x7
    with pytest.raises(ContainerError, match="task 0 has MAC operation 0xf"):
        decode(container, registers_only=True)


# Values by their places.


def matrix(rows, columns, start=64):
    return Layout((1, 1, rows, 1, columns), (0, 0, start, 0, 2))


def test_the_same_bytes_are_found_in_another_shape():
    memory = Memory()
    memory.write((4, 0), "x", (1, 1, 64, 8, 8), Layout((1, 1, 64, 8, 8), (0, 0, 512, 64, 2)))
    found = memory.read((4, 0), Layout((1, 1, 1, 512, 8), (0, 0, 0, 64, 2)))
    assert found is not None
    assert found.whole == "x"
    assert memory.read((4, 0), Layout((1, 1, 1, 512, 8), (0, 0, 0, 128, 2))) is None, "other strides, other elements"
    assert memory.read((4, 0), Layout((1, 1, 8, 64, 8), (0, 0, 64, 512, 2))) is None, "another order"


def test_parts_and_neighbours_are_found():
    memory = Memory()
    for number in range(4):
        memory.write((4, 64 * 3 * number), f"part {number}", (1, 1, 3, 1, 8), matrix(3, 8))
    found = memory.read((4, 0), matrix(12, 8))
    assert found is not None
    assert ([piece.value for piece in found.pieces], found.axis) == ([f"part {number}" for number in range(4)], 2)
    assert memory.read((4, 0), matrix(13, 8)) is None
    found = memory.read((4, 64), matrix(2, 8))
    assert found is not None
    assert (found.whole, found.pieces[0].value, found.pieces[0].cuts) == (None, "part 0", ((2, 1, 2),))


@pytest.mark.parametrize(
    "table", [ActivationTable(low=0.25), ActivationTable(high=6), ActivationTable(0, 6), ActivationTable(slope=0.5)]
)
def test_bounds_come_back_from_their_table(table):
    assert bounds_of(bounds_bytes(table)) == table
    broken = bytearray(bounds_bytes(table))
    broken[20] ^= 1
    assert bounds_of(bytes(broken)) is None
