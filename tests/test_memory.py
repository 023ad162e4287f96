"""Phase 4: banks, strides, pads, joined concats, allocation types, addresses and packed weights."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from container_kit import NAMES, example, tasks_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fuse import Build
from test_schedule import ALL, M1, named, square_map

import aneforge as af
from aneforge.chips import target
from aneforge.codegen.dialect import meaning_of
from aneforge.compiler.facts import facts_of
from aneforge.compiler.footprint import BANK_BYTES, Footprint, bank, conflict_depth, in_memory, spread_rows
from aneforge.compiler.memory import MEMORY, layout
from aneforge.compiler.memory.allocation import Allocation, LiveBuffer, allocation_of
from aneforge.compiler.memory.layout import Arena, pack, pack_on_chip
from aneforge.compiler.passes import run_passes
from aneforge.compiler.plan import plan_of
from aneforge.compiler.schedule import SCHEDULE
from aneforge.compiler.schedule.layers import LayerGraph
from aneforge.engine.interpret import interpret
from aneforge.engine.ir import TensorType
from aneforge.engine.text import parse

EXAMPLES = Path(__file__).resolve().parents[2] / "shared" / "facts" / "hwx" / "examples"
UP_TO = {name: MEMORY[: place + 1] for place, name in enumerate(MEMORY)}


def laid_out(module, chip=M1, until="pack-kernels"):
    run_passes(module, chip, ["label-layers", "cut-segments", *SCHEDULE, *UP_TO[until]], ALL)
    text = str(module)
    assert str(parse(text)) == text
    return LayerGraph.of_module(module)


def labels(graph, name):
    layer = next(layer for layer in graph.layers if layer.result.sources[-1] == name)
    return layer.primary.labels | printed(graph.module)[layer.primary]


def printed(module):
    return plan_of(module).labels(module)


# Banks.


def test_the_bank_function_is_the_published_one():
    """floor(address / 16) mod 64."""
    assert [bank(address) for address in (0, 15, 16, 1023, 1024, 1040)] == [0, 0, 1, 63, 0, 1]


@given(rows=st.integers(1, 200), steps=st.integers(1, 300))
def test_the_conflict_depth_is_what_counting_gives(rows, steps):
    stride = steps * BANK_BYTES
    hits: dict[int, int] = {}
    for row in range(rows):
        hits[bank(row * stride)] = hits.get(bank(row * stride), 0) + 1
    assert conflict_depth(rows, stride) == max(hits.values())


@given(row=st.integers(1, 5000), rows=st.integers(1, 300))
def test_neighbouring_rows_never_begin_on_one_bank(row, rows):
    stride = spread_rows(row * BANK_BYTES, rows)
    assert rows == 1 or bank(0) != bank(stride)
    assert stride == row * BANK_BYTES or bank(0) == bank(row * BANK_BYTES)


@pytest.mark.parametrize("name", [name for name in NAMES if "binary_add" in name])
def test_strides_are_those_of_published_programs(name):
    """On chip and in memory, for sums of two tensors on five generations."""
    task = tasks_of(example(name))[0]
    shape = tuple(int(extent) for extent in name.rsplit("_", 1)[1].split("x"))
    value = Build().input(TensorType((1, *shape)))
    on_chip, memory = footprint().on_chip(value), in_memory(value)
    assert meaning_of(task, "scratch.source.channel") == on_chip.channel
    assert meaning_of(task, "scratch.source.row") == on_chip.row
    assert meaning_of(task, "source.row") == memory.row
    assert meaning_of(task, "source.plane") == memory.channel


def footprint(chip="h13"):
    return Footprint(facts_of(target(chip), ("dram_alignment", "l2_bank_align")))


def test_rows_of_equal_length_lie_alike_and_others_do_not():
    b = Build()
    one, two = b.input(TensorType((1, 1, 8, 4, 12))), b.input(TensorType((1, 1, 32, 1, 12)))
    wide, line = b.input(TensorType((1, 1, 8, 1, 48))), b.input(TensorType((1, 1, 1, 1, 384)))
    fp = footprint()
    assert fp.same_bytes(one, two)
    assert not fp.same_bytes(one, wide)
    assert not fp.same_bytes(one, line)
    dense = b.input(TensorType((1, 1, 2, 1, 8))), b.input(TensorType((1, 1, 1, 1, 16)))
    assert fp.same_bytes(*dense)


# Pads.


def padded_conv(reader="convolution", pad=((0, 0), (1, 1)), mode="Zero", inner=0, kernel=3):
    b = Build()
    x = b.input(TensorType((1, 1, 4, 6, 6)))
    h, w = 6 + sum(pad[0]), 6 + sum(pad[1])
    sizes = ((0, 0), (0, 0), (0, 0), *pad)
    y = named(b, "pad", "padding", x, type_=TensorType((1, 1, 4, h, w)), padding_modes=mode, padding_sizes=sizes,
              background_value=0.0)  # fmt: skip
    out = TensorType((1, 1, 4, h + 2 * inner - kernel + 1, w + 2 * inner - kernel + 1))
    own = (0, 0, inner, inner, inner, inner)
    if reader == "convolution":
        weight = b.const(np.random.default_rng(0).normal(size=(4, 4, kernel, kernel)),
                         TensorType((4, 1, 4, kernel, kernel)))  # fmt: skip
        z = named(b, "conv", "convolution", y, weight, type_=out, strides=(1, 1, 1), dilation_rates=(1, 1, 1),
                  groups=1, explicit_padding=own, kernel_sizes=(1, kernel, kernel))  # fmt: skip
    else:
        z = named(b, "pool", reader, y, type_=out, ksize=(1, kernel, kernel), padding=own, stride=(1, 1, 1))
    return b.done(z)


def folds(module):
    feeds = [np.random.default_rng(1).normal(size=(1, 1, 4, 6, 6))]
    before = interpret(module, feeds)["y0"]
    graph = laid_out(module, until="fold-padding")
    np.testing.assert_allclose(interpret(module, feeds)["y0"], before, rtol=1e-12)
    return "padding" not in {layer.primary.kind for layer in graph.layers}


def test_a_zero_pad_becomes_the_padding_of_its_convolution():
    module = padded_conv(pad=((1, 0), (0, 1)), inner=1)
    assert folds(module)
    conv = next(op for op in module if op.kind == "convolution")
    assert conv.attrs["explicit_padding"] == (0, 0, 2, 1, 1, 2)
    assert conv.sources == ("pad", "conv")


def test_an_average_pool_counts_the_zeros_it_takes_over():
    module = padded_conv("average_pool")
    assert folds(module)
    assert next(op for op in module if op.kind == "average_pool").attrs["inc_pad"]


@pytest.mark.parametrize(
    "module",
    [
        padded_conv("max_pool"),  # its padding is minus infinity, not zero
        padded_conv("average_pool", inner=1),  # its own padding does not count, the zeros do
        padded_conv(mode="Symmetric"),
        padded_conv(pad=((3, 0), (0, 0))),  # as wide as the kernel
        padded_conv(pad=((2, 0), (0, 0)), inner=1),  # as wide as the kernel together with its own
    ],
)
def test_pads_that_mean_something_else_stay(module):
    assert not folds(module)


# Joined concats.


def peak(b, name, value):
    return named(b, name, "reduce_max", value, type_=TensorType((1, 1, 1, 1, 1)), axes=(2, 3, 4))


def joined(axis, widths, output=True):
    b = Build()
    parts = []
    for i, width in enumerate(widths):
        shape = [1, 1, 4, 4, 16]
        shape[axis] = width
        type_ = TensorType(tuple(shape))
        parts.append(named(b, f"part{i}", "softmax", b.input(type_), type_=type_, axes=(3,)))
    whole = [1, 1, 4, 4, 16]
    whole[axis] = sum(widths)
    type_ = TensorType(tuple(whole))
    y = named(b, "whole", "concat", *parts, type_=type_, axis=axis)
    return b.done(
        y if output else named(b, "after", "reduce_max", y, type_=TensorType((1, 1, 1, 1, 1)), axes=(2, 3, 4))
    )


@pytest.mark.parametrize("output", [True, False])
@pytest.mark.parametrize(("axis", "widths"), [(2, (3, 5)), (3, (1, 2, 4)), (4, (8, 16, 8))])
def test_pieces_are_written_where_they_belong(axis, widths, output):
    module = joined(axis, widths, output)
    graph = laid_out(module)
    whole = labels(graph, "whole")
    assert whole["engine"] == "view"
    concat = next(op for op in module if op.kind == "concat")
    strides = in_memory(concat) if output else footprint().on_chip(concat)
    unit = {2: strides.channel, 3: strides.row, 4: 2}[axis]
    starts = [labels(graph, f"part{i}")["buffer_offset"] for i in range(len(widths))]
    assert starts == [sum(widths[:i]) * unit for i in range(len(widths))]
    for i in range(len(widths)):
        part = labels(graph, f"part{i}")
        assert part["space"] == whole["space"] == ("port" if output else "l2")
        assert (part["channel_stride"], part["row_stride"]) == strides[:2]


def test_a_width_piece_off_the_granule_is_copied():
    assert labels(laid_out(joined(4, (7, 9))), "whole")["engine"] == "DMA"
    assert labels(laid_out(joined(4, (7, 9)), target("m9")), "whole")["engine"] == "view"  # its granule is one byte


def test_a_piece_with_another_reader_is_copied():
    b = Build()
    one, two = b.op("softmax", b.input(), axes=(2,)), b.op("softmax", b.input(), axes=(2,))
    y = named(b, "whole", "concat", one, two, type_=TensorType((1, 1, 16, 4, 4)), axis=2)
    assert labels(laid_out(b.done(y, b.op("abs", one))), "whole")["engine"] == "DMA"


# Allocation types: all nine of table 22.2.


def test_there_are_nine_states():
    assert {int(state) for state in Allocation} == set(range(9))


@pytest.mark.parametrize(
    ("chained", "dependent", "in_place", "ring", "on_chip", "state"),
    [
        (False, False, False, False, True, 0),
        (False, False, False, False, False, 1),
        (False, True, False, False, False, 1),
        (True, False, False, False, True, 2),
        (True, True, True, False, True, 2),
        (False, True, False, False, True, 3),
        (False, False, True, False, True, 4),
        (False, True, True, False, True, 5),
        (False, False, False, True, True, 6),
        (False, True, False, True, True, 7),
        (False, False, True, False, False, 8),
    ],
)
def test_the_state_follows_from_what_is_known(chained, dependent, in_place, ring, on_chip, state):
    assert allocation_of(chained, dependent, in_place, ring, on_chip) == state


def states(module, chip=M1):
    graph = laid_out(module, chip)
    return {layer.result.sources[-1]: layer.allocation for layer in graph.layers}


def test_states_of_a_small_program():
    b = Build()
    x = b.input()
    soft = named(b, "soft", "softmax", x, axes=(2,))  # held for two readers
    one = b.conv(soft)
    one.sources = ("one",)
    two = b.conv(one)
    two.sources = ("two",)
    three = named(b, "three", "add", two, soft)  # the last reader of both
    four = named(b, "four", "relu", b.conv(three))
    found = states(b.done(named(b, "out", "softmax", four, axes=(2,))))
    assert found["soft"] == Allocation.RESIDENT
    assert found["one"] == Allocation.CHAINED
    assert found["two"] == Allocation.DEPENDENT
    assert found["three"] == Allocation.IN_PLACE
    assert found["out"] == Allocation.STREAMED


def test_a_rewrite_in_place_behind_a_chain():
    b = Build()
    one = named(b, "one", "softmax", b.input(), axes=(2,))
    two = named(b, "two", "mult", one, b.input())
    found = states(b.done(b.conv(two)))  # another engine reads it, so the chain ends there
    assert found["one"] == Allocation.CHAINED
    assert found["two"] == Allocation.IN_PLACE_DEPENDENT


def test_rings_and_rewrites_in_memory():
    b = Build()
    x = b.input()
    buffer = named(b, "ring", "state", name="cache")
    written = named(b, "write", "ring_buffer_writer", x, buffer, offset=0)
    view = named(b, "view", "reshape", x, type_=TensorType((1, 1, 32, 1, 4)), shape=(1, 1, 32, 1, 4))
    soft = named(b, "soft", "softmax", view, type_=view.type, axes=(2,))
    found = states(b.done(written, soft))
    assert found["ring"] == Allocation.RING
    assert found["write"] == Allocation.RING
    assert found["view"] == Allocation.IN_PLACE_MEMORY


# Addresses.


@settings(max_examples=60)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 30), st.integers(0, 8)), min_size=1, max_size=40),
    capacity=st.sampled_from([None, 4096]),
    most_together=st.sampled_from([0, 64]),
)
def test_no_two_live_buffers_overlap(sizes, capacity, most_together):
    b = Build()
    buffers = []
    for size, first, length in sizes:
        buffer = LiveBuffer(b.input(), first)
        buffer.last, buffer.size = first + length, size
        buffers.append(buffer)
    with mock.patch.object(layout, "_MOST_TOGETHER", most_together):
        packing = pack(buffers) if capacity is None else pack_on_chip(buffers, capacity)
    placed, homeless, top = packing.addresses, packing.homeless, packing.top
    assert set(placed) | set(homeless) == set(buffers)
    if capacity is None:
        assert not homeless
    for one, start in placed.items():
        assert start % 64 == 0
        assert start + one.size <= top
        assert capacity is None or start + one.size <= capacity
        for two, other in placed.items():
            if one is not two and one.first <= two.last and two.first <= one.last:
                assert start + one.size <= other or other + two.size <= start


def test_the_largest_comes_first_unless_very_many_live_together():
    """With very many that takes too long: the time of each grows with how many live beside it."""
    b = Build()

    def alive(count):
        buffers = [LiveBuffer(b.input(), first) for first in range(count)]
        for buffer in buffers:
            buffer.last, buffer.size = count, 64 * (1 + buffer.first)
        return buffers, pack_on_chip(buffers, 1 << 20).addresses

    few, places = alive(8)
    assert places[few[-1]] == 0
    many, places = alive(160)
    assert places[many[0]] == 0


def test_an_arena_takes_the_best_hole_and_joins_neighbours():
    arena = Arena()
    places = [arena.take(size) for size in (256, 64, 512, 64)]
    arena.give_back(places[0], 256)
    arena.give_back(places[2], 512)
    assert arena.take(200) == places[0]  # the smaller hole
    arena.give_back(places[0], 200)
    arena.give_back(places[1], 64)
    assert arena.take(800) == places[0]  # three holes that touch


def test_what_finds_no_room_between_others_goes_to_memory():
    """Beside 900 KB, 750 KB take the place of 1000 KB; then 260 KB more fit in sum but in no piece."""
    b = Build()

    def made(name, kilobytes):
        return named(b, name, "softmax", b.input(square_map(kilobytes)), type_=square_map(kilobytes), axes=(3,))

    one, early = made("one", 900), peak(b, "early", made("large", 1000))
    three, late = made("three", 750), made("late", 260)
    top = peak(b, "peak4", late)
    ends = [named(b, f"end{i}", "add", each, top, type_=each.type) for i, each in enumerate((one, three))]
    graph = laid_out(b.done(early, *ends))
    names = [layer.result.sources[-1] for layer in graph.layers]
    assert names.index("one") < names.index("early") < names.index("three") < names.index("late") < names.index("end0")
    assert len({layer.task_group for layer in graph.layers}) == 1
    assert [labels(graph, name)["space"] for name in ("one", "large", "three", "late")] == ["l2", "l2", "l2", "dram"]
    assert labels(graph, "late")["allocation"] == Allocation.STREAMED


# Weights.


def test_kernels_are_built_per_core_on_a13_and_shared_from_a14():
    """Each core builds its own output channels, so the size is that of one copy, however many cores there are."""
    sizes = {}
    for chip in ("h13", "h13g", "h14", "h14g", "h17s"):
        b = Build()
        module = b.done(b.conv(b.input()))
        laid_out(module, target(chip))
        kernel = next(op for op in module if op.kind == "const_in")
        sizes[chip] = printed(module)[kernel]["kernel_bytes"], printed(module)[kernel]["kernel_path"]
    plain = 8 * 8 * 2
    assert sizes["h13"] == sizes["h13g"] == (plain, "per core")
    assert sizes["h14"] == sizes["h14g"] == sizes["h17s"] == (plain, "shared")


PUBLISHED = {
    "h13__conv_k3_c64_n64_s8_bias0": (73_728, 1),
    "h14__conv_k3_c64_n64_s8_bias0": (73_728, 1),
    "h13__matmul_m8_k256_n512_ty1": (262_144, 2),
    "h15__matmul_m8_k256_n512_ty1": (262_144, 2),
    "h17__matmul_m8_k256_n512_ty1": (262_144, 2),
}
"""Bytes of weights and number of tasks in programs that the vendor's compiler emitted (MHX)."""


def published_network(name):
    if "__conv_k3_c64_n64_s8" in name:
        return af.conv(af.input((1, 64, 8, 8), name="x"), np.full((64, 64, 3, 3), 0.5), pad=1)
    assert "__matmul_m8_k256_n512" in name, name
    return af.input((8, 256), name="x").linear(np.full((512, 256), 0.5))


@pytest.mark.parametrize("name", PUBLISHED)
def test_packed_weights_take_what_they_take_in_published_programs(name):
    program = af.compile(published_network(name), target=name.partition("__")[0]).program
    assert (program.stats["kernel_bytes"], len(program)) == PUBLISHED[name]  # a product: one moves, one computes
    assert [layer.passes for layer in program.layers if layer.weights] == [1]


def test_the_published_sizes_are_those_of_the_files():
    files = {path.stem: path for path in EXAMPLES.glob("*.json") if "__conv" in path.stem or "__matmul" in path.stem}
    if not files:
        pytest.skip("the published programs are not beside the repository")
    assert set(files) == set(PUBLISHED)
    for name, path in files.items():
        example = json.loads(path.read_text())
        size = example.get("kernel_section", example["const_section"])["size"]
        assert (size, len(example["tasks"])) == PUBLISHED[name]
        lane = size // 16
        words = [int(word, 16) for task in example["tasks"] for each in task["commands"] for word in each["values"]]
        assert words.count(lane) >= 16  # a sixteenth for each lane (C37)


def test_a_strided_kernel_folds_and_a_plain_one_streams():
    flows = []
    for stride in (1, 2):
        b = Build()
        conv = b.conv(b.input())
        conv.attrs["strides"] = (1, stride, stride)
        conv.type = TensorType((1, 1, 8, 4 // stride, 4 // stride))
        module = b.done(conv)
        laid_out(module)
        flows.append(next(op for op in module if op.kind == "const_in").labels["weight_flow"])
    assert flows == ["stream", "fold"]


@pytest.mark.parametrize(("chip", "kind"), [("h13", "default"), ("h15", "dedicated"), ("h17s", "dedicated")])
def test_small_convolutions_get_a_buffer_of_their_own_where_the_threshold_allows(chip, kind):
    b = Build()
    module = b.done(b.op("softmax", b.conv(b.input()), axes=(2,)))  # a result that stays on chip
    laid_out(module, target(chip))
    assert printed(module)[next(op for op in module if op.kind == "convolution")]["buffer"] == kind


def test_a_result_above_the_threshold_takes_the_default_buffer():
    sizes = {"h15": 32768, "h16": 262144}
    for chip, threshold in sizes.items():
        b = Build()
        type_ = TensorType((1, 1, 8, threshold // 128, 4))  # 16 bytes a row
        conv = b.conv(b.input(type_))
        conv.type = type_
        fp = footprint(chip)
        module = b.done(b.op("softmax", conv, type_=type_, axes=(2,)))
        laid_out(module, target(chip))
        own = fp.bytes(conv) <= threshold
        assert printed(module)[next(op for op in module if op.kind == "convolution")]["buffer"] == (
            "dedicated" if own else "default"
        )
