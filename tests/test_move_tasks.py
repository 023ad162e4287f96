"""Moves and products as tasks: slices, tiles, rows as channels, products in parts and in pairs, to the bit."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.codegen.container import read_container
from aneforge.codegen.decoding import decode
from aneforge.codegen.dialect import written_generations
from aneforge.codegen.emission import emit
from aneforge.codegen.forms import Form, product_lanes
from aneforge.codegen.memory import Layout, Memory
from aneforge.codegen.plan import Kernel
from aneforge.codegen.split import KERNEL_MEMORY, split_outputs
from aneforge.study.model import Model

ROOT = Path(__file__).resolve().parents[1]
rng = np.random.default_rng(3840)


def halves(*shape):
    return (0.5 * rng.normal(size=shape)).astype(np.float16)


def same_bits(outputs, generation, text=False):
    """Writes a model, runs what its registers say, and compares with the simulator; gives the record."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = af.compile(outputs, target=generation, _check_precision=False)
    container = emit(model.program)
    assert container.record is not None
    assert text or not container.record.not_expressed, str(container.record)
    feeds = {port.name: halves(*port.user_shape) for port in model.program.inputs}
    again = decode(read_container(container.to_bytes()), registers_only=not text)
    (expected,) = model.run(feeds).outputs.values()
    shaped = {port.name: feeds[port.name].reshape(port.user_shape) for port in again.inputs}
    (found,) = Model(model.graph, again).run(shaped).outputs.values()
    assert found.tobytes() == expected.tobytes()
    return container.record


@pytest.mark.parametrize("generation", written_generations())
def test_moves_come_back_from_the_registers(generation):
    x = af.input((1, 16, 6, 20), name="x")
    assert same_bits(x[:, 3:9].named("y"), generation).tasks[0].form == "slice"
    assert same_bits(x.transpose((0, 2, 1, 3)).named("y"), generation).tasks[0].form == "rows for channels"
    row = af.input((1, 8, 1, 10), name="x")
    assert same_bits(row.tile((1, 1, 5, 1)).named("y"), generation).tasks[0].form == "tile"
    number = af.input((1, 8, 1, 1), name="x")
    same_bits(number.tile((1, 1, 4, 6)).named("y"), generation)
    same_bits(af.input((1, 32, 1, 1), name="x").reshape(1, 32).linear(halves(16, 32)).named("y"), generation)


@pytest.mark.parametrize("generation", written_generations())
@pytest.mark.parametrize("rows", [1, 16, 21, 48, 80, 96, 197, 256])
@pytest.mark.parametrize(("first", "second"), [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_any_rows_come_back(generation, rows, first, second):
    x = af.input((64, rows) if first else (rows, 64), name="x")
    z = af.input((40, 64) if second else (64, 40), name="z")
    product = af.matmul(x.T if first else x, z.T if second else z)
    record = same_bits(product.named("y"), generation)
    assert {task.form.split()[0] for task in record.tasks} <= {"product", "transpose"}


@pytest.mark.parametrize("generation", ["h13", "h14", "h17"])
def test_heads_are_a_product_each(generation):
    """Attention of three heads of 32 tokens: the heads lie in the rows of the tensors."""
    tokens, heads, width = 32, 3, 16
    x = af.input((tokens, heads * width), name="x")
    q, k, v = (
        x.linear(halves(heads * width, heads * width)).reshape(tokens, heads, width).transpose((1, 0, 2))
        for _ in range(3)
    )
    scores = (af.matmul(q, k.transpose((0, 2, 1))) * 0.25).softmax(-1)
    mixed = af.matmul(scores, v).transpose((1, 0, 2)).reshape(tokens, heads * width)
    record = same_bits(mixed.linear(halves(8, heads * width)).named("y"), generation, text=True)
    products = [task for task in record.tasks if task.form.startswith("product")]
    assert len(products) == 2
    assert all("pairs" in task.form and task.passes >= heads for task in products)
    assert not record.not_expressed, str(record)


@pytest.mark.parametrize("seed", range(30))
def test_parts_of_a_kernel_fit_a_core(seed):
    """Each part is an even number of outputs a core, and no larger than a core keeps; together they are all."""
    draw = np.random.default_rng(seed)
    outputs, inputs = (16 * int(draw.integers(1, 130)) for _ in range(2))
    side, stride = int(draw.choice([1, 3, 5])), int(draw.choice([1, 2]))
    weights = np.broadcast_to(np.float16(1), (outputs, inputs, side, side))
    form = Form("convolution", "mac", "convolution", (), Kernel(side, side, (stride, stride)), weights)
    spans = split_outputs(form, is_small=False)
    assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])]
    assert spans[-1].stop == outputs
    assert split_outputs(form, is_small=True) == [slice(0, outputs)]
    for span in spans[:-1]:
        count = span.stop - span.start
        assert count % 16 == 0
        assert stride > 1 or count == 16 or count // 16 * 2 * inputs * side * side <= KERNEL_MEMORY


@pytest.mark.parametrize("rows", range(16, 520, 16))
def test_rows_side_by_side_are_a_power_of_two(rows):
    lanes = product_lanes(rows)
    assert lanes & (lanes - 1) == 0
    assert 16 * lanes <= rows
    assert lanes <= 8


@pytest.mark.parametrize("generation", ["h13", "h16"])
def test_sums_that_scratch_cannot_hold_go_by_channels(generation):
    """Two tensors of 1.6 MB: half of the channels at a time, the last ones first."""
    x, z = (af.input((1, 256, 56, 56), name=name) for name in "xz")
    record = same_bits((x + z).relu().named("y"), generation)
    assert record.tasks[0].passes == 3
    stretched = same_bits((x * af.input((1, 256, 1, 1), name="z")).named("y"), generation)
    assert stretched.tasks[0].form == "stretched"


def test_a_window_that_scratch_cannot_hold_takes_rows():
    """96 channels of 112 by 112 are 2.4 MB: rows by eights, and a word of their number."""
    x = af.input((1, 96, 112, 112), name="x")
    y = af.conv(x, halves(96, 1, 3, 3), stride=2, pad=1, groups=96).named("y")
    record = same_bits(y, "h13")
    assert "tiles" in record.tasks[0].sampled
    assert record.tasks[0].verdict == "by analogy"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (task,) = emit(af.compile(y, target="h13", _check_precision=False).program).tasks
    assert task.registers["Common.TileCfg.TileHeight"] % 8 == 0
    assert task.registers["Common.TileCfg.TileHeight"] < 56


def test_a_value_that_is_written_over_is_gone():
    """Parts of an earlier tensor do not come back once a whole one lies over them; columns between them stay."""
    memory: Memory[str] = Memory()
    whole = Layout((1, 1, 8, 1, 32), (0, 0, 64, 0, 2))
    half = Layout((1, 1, 4, 1, 32), (0, 0, 64, 0, 2))
    memory.write((3, 256), "old half", half.shape, half)
    memory.write((3, 0), "whole", whole.shape, whole)
    found = memory.read((3, 256), half)
    assert found is not None
    assert found.pieces[0].value == "whole"
    columns = Layout((1, 1, 8, 1, 16), (0, 0, 64, 0, 2))
    memory.write((3, 32), "right", columns.shape, columns)
    memory.write((3, 0), "left", columns.shape, columns)
    joined = memory.read((3, 0), whole)
    assert joined is not None
    assert [piece.value for piece in joined.pieces] == ["left", "right"]


@pytest.mark.parametrize("network", ["resnet50", "mobilenetv2"])
def test_networks_for_an_m1_rest_on_rules(network):
    """What is not by rule is pooling, the mean over the map, and a window in tiles."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        networks = importlib.import_module("networks")
    finally:
        sys.path.pop(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = af.compile(networks.NETWORKS[network](), target="h13", _check_precision=False).program
    record = emit(program).record
    assert record is not None
    assert not record.not_expressed
    others = [task for task in record.tasks if task.task is not None and task.verdict == "by analogy"]
    assert all(task.form in ("pool", "reduction of a map") or "tiles" in task.sampled for task in others)
    assert len(others) == 2


@pytest.mark.parametrize("generation", written_generations())
def test_rows_of_a_matrix_input_come_back(generation):
    """Rows of a matrix are the channels of the tensor that tasks read, for the reader as for the writer."""
    x = af.input((3, 40), name="x")
    assert same_bits(x[1:2].relu().named("y"), generation, text=True).tasks[0].form == "slice"


@pytest.mark.parametrize("generation", written_generations())
@pytest.mark.parametrize(
    ("axis", "one", "other"),
    [(1, (16, 4, 32), (32, 4, 32)), (2, (16, 8, 32), (16, 4, 32)), (3, (16, 4, 224), (16, 4, 32))],
)
def test_parts_of_a_joined_output_lie_side_by_side(generation, axis, one, other):
    """What a concat joins is written behind what comes before it, in the strides of the whole output."""
    x, z = af.input((1, *one), name="x"), af.input((1, *other), name="z")
    record = same_bits(af.concat([x.sigmoid(), z.relu()], axis).named("y"), generation)
    assert [task.reason for task in record.tasks] == ["", "", "a view moves nothing"]


@pytest.mark.parametrize("generation", written_generations())
def test_windows_that_leave_columns_over_keep_their_step(generation):
    """A window of two columns that stands once on three: with a step of one it would stand twice."""
    x = af.input((1, 8, 5, 3), name="x")
    assert same_bits(x.max_pool((2, 2), 2).named("y"), generation).tasks[0].form == "pool"
    same_bits(af.conv(x, halves(16, 8, 2, 2), stride=2).named("y"), generation)
    wide = af.input((1, 8, 9, 7), name="x")
    record = same_bits(wide.max_pool((1, 4), 4).named("y"), generation, text=True)
    assert "a stride of 4" in record.tasks[0].reason


@pytest.mark.parametrize("generation", ["h13", "h16"])
def test_a_view_is_the_same_bytes_or_text(generation):
    """Rows of eight numbers are padded in memory: a row of 64 numbers does not lie there, and eight channels do."""
    padded = af.input((1, 4, 8, 8), name="x").reshape(1, 4, 1, 64).sigmoid()
    record = same_bits(padded.named("y"), generation, text=True)
    (work,) = (task for task in record.tasks if task.form == "sigmoid")
    assert not work.expressed
    assert "where no task wrote such a tensor" in work.reason
    whole = af.input((1, 4, 8, 64), name="x").reshape(1, 32, 1, 64).sigmoid()
    assert not same_bits(whole.named("y"), generation).not_expressed


@pytest.mark.parametrize("generation", written_generations())
def test_tensors_between_tasks_end_in_scratch(generation):
    """The copy and the powers of a softmax lie side by side, behind its source and its result."""
    x = af.input((1, 128, 12, 64), name="x")
    assert not same_bits(x.softmax(-1).named("y"), generation, text=True).not_expressed
    wide = af.input((1, 128, 16, 256), name="x")
    record = same_bits(wide.softmax(-1).named("y"), generation, text=True)
    assert [task.reason for task in record.tasks] == [
        "tensors between its tasks do not fit the engine's own memory of 2 MiB"
    ]
