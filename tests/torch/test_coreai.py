# pyright: reportMissingImports=false
"""Core AI's operations one by one, and small networks: the graph that is read gives what Core AI's own CPU gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coreai_kit import A, Body, Ports, X, build, compare, constant, f32, ir, numbers, packed, random, s32, u32

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats.coreai.language import CONTROL
from aneforge.formats.coreai.table import REFUSED, ROWS

# Ops one by one.

XY: Ports = {"x": ((2, 3, 4), "float32"), "y": ((2, 3, 4), "float32")}
PLANES: Ports = {"x": ((1, 4, 9, 7), "float32")}
BOX: Ports = {"x": ((1, 2, 5, 6, 4), "float32")}

SMOOTH = (
    "abs_",
    "asinh",
    "atan",
    "cos",
    "cosh",
    "erf",
    "exp",
    "relu",
    "round_",
    "sigmoid",
    "silu",
    "sin",
    "sinh",
    "tanh",
)
UNARY = {
    **dict.fromkeys(SMOOTH, (-2.0, 2.0)),
    **dict.fromkeys(("acos", "asin", "atanh", "tan"), (-0.9, 0.9)),
    **dict.fromkeys(("log", "sqrt", "rsqrt"), (0.1, 3.0)),
    "acosh": (1.1, 4.0),
}
BINARY = ["add", "sub", "mul", "divide", "maximum", "minimum", "modulo", "floor_divide"]


@pytest.mark.parametrize("name", UNARY)
def test_unary(tmp_path: Path, name: str) -> None:
    low, high = UNARY[name]
    graph = compare(tmp_path, getattr(A, name), X, low, high)
    assert graph.outputs[0].name == "y0"


@pytest.mark.parametrize("name", BINARY)
def test_binary(tmp_path: Path, name: str) -> None:
    compare(tmp_path, getattr(A, name), XY, 0.3, 3.0)


@pytest.mark.parametrize("name", [*BINARY, "pow"])
def test_binary_spread(tmp_path: Path, name: str) -> None:
    ports: Ports = {"x": ((2, 3, 4), "float32"), "y": ((3, 1), "float32")}
    compare(tmp_path, getattr(A, f"broadcasting_{name}"), ports, 0.3, 3.0)


def _selected(x: Any, y: Any) -> Any:
    return A.where(A.greater(x, y), A.exp(x), A.mul(y, np.full((2, 3, 4), 0.5, np.float32)))


def _logic(x: Any, y: Any) -> Any:
    big, equal = A.broadcasting_greater(x, np.zeros(1, np.float32)), A.equal(x, y)
    either = A.or_(A.and_(big, A.not_(equal)), A.xor_(big, A.not_equal(x, y)))
    return A.cast(A.broadcasting_where(either, big, A.bitwise_or(big, equal)), np.float32)


def _truths(x: Any, y: Any) -> Any:
    mask = A.greater(x, y)
    return [A.cast(A.all_(mask, s32(2)), np.float32), A.cast(A.any_(mask, s32(0, -1)), np.float32)]


def _gathered(x: Any, y: Any) -> Any:
    places = np.random.default_rng(3).integers(-3, 3, (2, 5, 4)).astype(np.int32)
    return [A.gather_along_axis(x, places, np.int32(1)), A.gather_nd(y, np.array([[0, 2], [1, -1]], np.int32))]


def _scattered(x: Any, y: Any) -> Any:
    """Places that differ, since the language leaves open which of two updates counts."""
    places = np.stack([np.stack([np.random.default_rng(i).permutation(3) for i in range(4)], 1)] * 2).astype(np.int32)
    kind = A.TensorType((2, 3, 4), np.float32)
    modes = ["update", "add", "sub", "mul", "div", "max", "min"]
    found = [A.scatter_along_axis(kind, x, places, y, np.int32(1), scatter_mode=mode) for mode in modes]
    return [*found, A.scatter_nd(x, np.array([[1, 2], [0, 1]], np.int32), random(2, 4))]


def _scans(x: Any, y: Any) -> Any:
    ways = [(way, back) for way in ("sum", "product", "min", "max") for back in (False, True)]
    return [A.scan(x, np.uint32(1), np.array(back), way) for way, back in ways]


def _sliced(x: Any, y: Any) -> Any:
    """Negative places, steps, and slices that run backwards."""
    return [
        A.slice_(x, s32(0, 1, -3), s32(2, 3, -1), s32(1, 1, 1)),
        A.slice_(x, s32(1, 2, 3), s32(0, -9, 0), s32(-1, -1, -2)),
        A.slice_update(x, s32(0, 1, 1), s32(2, 3, 4), s32(1, 1, 2), random(2, 2, 2)),
        A.slice_update(
            x, s32(1, 0, 0), s32(2, 3, 4), s32(1, 1, 1), A.slice_(y, s32(0, 0, 0), s32(1, 3, 4), s32(1, 1, 1))
        ),
    ]


def _shapes(x: Any, y: Any) -> Any:
    wide = A.expand_dims(x, s32(0, -1))
    return [
        A.reshape(x, s32(-1, 6)),
        A.reshape(x, u32(24)),
        A.transpose(x, u32(2, 0, 1)),
        A.shrink_dims(wide, s32(0)),
        A.broadcast_in_dims(wide, u32(3), s32(-1)),
        A.broadcast_to(x, u32(2, 2, 3, 4)),
        A.tile(x, u32(2, 3)),
        A.reverse(x, s32(0, -1)),
        A.concat(np.int32(-1), [x, y, x]),
        *A.split(x, u32(1, 2), np.int32(1)),
        *A.split(y, np.uint32(3), np.int32(2)),
    ]


def _reduced(x: Any, y: Any) -> Any:
    kinds = ["reduce_max", "reduce_mean", "reduce_min", "reduce_product", "reduce_sum"]
    found = [getattr(A, kind)(x, axes) for kind in kinds for axes in (s32(1), s32(0, -1))]
    return [
        *found,
        A.cast(A.argmax(x, np.int32(1)), np.float32),
        A.softmax(x, np.int32(1)),
        A.softmax(x, np.int32(-1)),
    ]


def _sorts(x: Any, y: Any) -> Any:
    up, down = np.array(False), np.array(True)
    return [A.sort(x, np.int32(1), down, down), A.cast(A.argsort(x, np.int32(-1), up, down), np.float32)]


def _pads(x: Any, y: Any) -> Any:
    flat, fill = u32(0, 0, 1, 2, 2, 1), np.float32(0.5)
    return [A.pad(x, flat, fill, mode) for mode in ["constant", "replicate", "reflect", "symmetric", "circular"]]


def _gelus(x: Any, y: Any) -> Any:
    return [A.gelu(x, approximate=way) for way in ("none", "tanh", "sigmoid")]


def _casts(x: Any, y: Any) -> Any:
    """Fractions fall away on the way to whole numbers, and back they are floats."""
    whole = A.cast(A.mul(x, np.full((2, 3, 4), 3, np.float32)), np.int32)
    return [
        A.cast(whole, np.float32),
        A.cast(A.cast(y, np.bool_), np.float32),
        A.cast(A.cast(x, np.float16), np.float32),
    ]


def _powers(x: Any, y: Any) -> Any:
    return [A.broadcasting_pow(x, np.array(power, np.float32)) for power in (2.0, 3.0)]


GROUPS: list[Body] = [
    *(_selected, _logic, _truths, _gathered, _scattered, _scans, _sliced),
    *(_shapes, _reduced, _sorts, _pads, _gelus, _casts, _powers),
]


@pytest.mark.parametrize("body", GROUPS, ids=lambda body: body.__name__.strip("_"))
def test_group(tmp_path: Path, body: Body) -> None:
    compare(tmp_path, body, XY)


OTHERS = {"condition", "graph", "output", "target_spec", "yield"}


def test_every_operation_has_a_rule_or_a_reason() -> None:
    """Of the language as the installed package defines it; a new one shows up here."""
    from coreai._compiler.dialects import _coreai_ops_gen as dialect

    views = [each for each in vars(dialect).values() if isinstance(each, type) and hasattr(each, "OPERATION_NAME")]
    kinds = {each.OPERATION_NAME.split(".")[-1].removeprefix("broadcasting_") for each in views}
    assert len(kinds) > 100
    assert kinds - {*ROWS, *CONTROL, *REFUSED, *OTHERS} == set()


def _inverse(x: Any) -> Any:
    whole = A.floor_divide(x, np.ones((2, 3, 4), np.float32))
    return [whole, A.divide(np.ones((2, 3, 4), np.float32), A.add(whole, np.full((2, 3, 4), 3.5, np.float32)))]


def test_floor_is_a_division_by_one(tmp_path: Path) -> None:
    graph = compare(tmp_path, _inverse, X)
    assert {each.op for each in graph.nodes} >= {"floor", "inverse"}


# Convolutions and pools, with the padding and the bias that stand beside them.


def _conv(pads: tuple[int, int], stride: int = 1, dilation: int = 1, groups: int = 1) -> Body:
    def body(x: Any) -> Any:
        wide = A.pad(x, u32(0, 0, 0, 0, pads[0], pads[1], pads[0], pads[0]), np.float32(0))
        kernel = random(8, 4 // groups, 3, 3)
        made = A.conv2d(wide, kernel, u32(stride, stride), u32(dilation, dilation), np.uint32(groups))
        return A.relu(A.broadcasting_add(made, random(1, 8, 1, 1)))

    return body


@pytest.mark.parametrize("settings", [((1, 1),), ((1, 2), 2), ((2, 2), 1, 2), ((1, 1), 1, 1, 4), ((0, 0), 2, 1, 2)])
def test_convolution(tmp_path: Path, settings: Any) -> None:
    graph = compare(tmp_path, _conv(*settings), PLANES)
    assert [each.op for each in graph.nodes if each.op != "const"] == ["input", "conv", "relu"]
    assert len(af.compile(graph, target="m1").program.layers) == 1  # the bias and the activation belong to the product
    assert next(each.name for each in graph.nodes if each.op == "conv").startswith("conv2d_")


def test_a_padding_that_others_read_stays(tmp_path: Path) -> None:
    def body(x: Any) -> Any:
        wide = A.pad(x, u32(0, 0, 0, 0, 1, 1, 1, 1), np.float32(0))
        return [A.conv2d(wide, random(8, 4, 3, 3), u32(1, 1), u32(1, 1), np.uint32(1)), A.relu(wide)]

    graph = compare(tmp_path, body, PLANES)
    assert "pad" in {each.op for each in graph.nodes}


def test_a_padding_that_is_not_zero_stays(tmp_path: Path) -> None:
    def body(x: Any) -> Any:
        wide = A.pad(x, u32(0, 0, 0, 0, 1, 1, 1, 1), np.float32(0.5))
        return A.conv2d(wide, random(8, 4, 3, 3), u32(1, 1), u32(1, 1), np.uint32(1))

    compare(tmp_path, body, PLANES)


def test_convolution_over_three_axes(tmp_path: Path) -> None:
    compare(tmp_path, lambda x: A.conv3d(x, random(4, 2, 2, 3, 3), u32(1, 2, 1), u32(1, 1, 1), np.uint32(1)), BOX)


def test_convolution_with_a_computed_kernel(tmp_path: Path) -> None:
    ports: Ports = {**PLANES, "w": ((8, 4, 3, 3), "float32")}
    compare(tmp_path, lambda x, w: A.conv2d(x, w, u32(1, 1), u32(1, 1), np.uint32(1)), ports, -1, 1, 2e-2)


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (1, 0)])
def test_transposed_convolution(tmp_path: Path, padding: tuple[int, ...]) -> None:
    def body(x: Any) -> Any:
        kernel = random(4, 3, 3, 3)
        return A.conv_transpose2d(x, kernel, u32(2, 2), u32(*padding), u32(1, 1), u32(1, 0), np.uint32(2))

    compare(tmp_path, body, PLANES)


def _pool(fill: float) -> Body:
    def body(x: Any) -> Any:
        wide = A.pad(x, u32(0, 0, 0, 0, 1, 1, 1, 0), np.float32(fill))
        shape = (1, 4, 5, 3)
        kind = A.TensorType(shape, np.float32)
        return A.maxpool2d(kind, wide, u32(3, 3), u32(2, 2), u32(1, 1), np.array(False))

    return body


@pytest.mark.parametrize("fill", [-np.inf, -65504.0, 0.0])
def test_max_pool(tmp_path: Path, fill: float) -> None:
    graph = compare(tmp_path, _pool(fill), PLANES)
    assert ("pad" in {each.op for each in graph.nodes}) == (fill == 0.0)


def test_max_pool_with_gaps_and_rounded_up(tmp_path: Path) -> None:
    def body(x: Any) -> Any:
        return [
            A.maxpool2d(A.TensorType((1, 4, 5, 3), np.float32), x, u32(3, 3), u32(1, 1), u32(2, 2), np.array(False)),
            A.maxpool2d(A.TensorType((1, 4, 5, 4), np.float32), x, u32(2, 2), u32(2, 2), u32(1, 1), np.array(True)),
        ]

    compare(tmp_path, body, PLANES)


def test_max_pool_over_three_axes(tmp_path: Path) -> None:
    kind = A.TensorType((1, 2, 2, 3, 2), np.float32)
    compare(tmp_path, lambda x: A.maxpool3d(kind, x, u32(2, 2, 2), u32(2, 2, 2), u32(1, 1, 1), np.array(False)), BOX)


def test_sum_pool(tmp_path: Path) -> None:
    compare(tmp_path, lambda x: A.sumpool2d(x, u32(3, 2), u32(2, 1), constant(u32(1, 2))), PLANES)


def _average(count_pad: bool) -> Body:
    def body(x: Any) -> Any:
        wide = A.pad(x, u32(0, 0, 0, 0, 1, 1, 1, 1), np.float32(0))
        summed = A.sumpool2d(wide, u32(3, 3), u32(2, 2), constant(u32(1, 1)))
        if count_pad:
            return A.broadcasting_mul(summed, np.array(1 / 9, np.float32))
        inside = np.pad(np.ones((9, 7)), 1)
        counts = [[inside[i : i + 3, j : j + 3].sum() for j in range(0, 7, 2)] for i in range(0, 9, 2)]
        return A.broadcasting_divide(summed, np.array(counts, np.float32)[None, None])

    return body


@pytest.mark.parametrize("count_pad", [True, False])
def test_an_average_is_one_pool(tmp_path: Path, count_pad: bool) -> None:
    graph = compare(tmp_path, _average(count_pad), PLANES)
    assert [each.op for each in graph.nodes] == ["input", "avg_pool"]


@pytest.mark.parametrize("mode", ["linear", "nearest_neighbor"])
def test_interpolate(tmp_path: Path, mode: str) -> None:
    ones, none = [1.0, 1.0], [0.0, 0.0]
    corners = [(17 - 1) / (9 - 1), (13 - 1) / (7 - 1)]

    def body(x: Any) -> Any:
        shift = [0.5 * (1 - each) for each in corners]
        half = A.interpolate(x, s32(1, 4, 18, 14), f32([*ones, 2, 2]), f32([*none, 0, 0]), mode)
        whole = A.interpolate(x, s32(1, 4, 17, 13), f32([*ones, *corners]), f32([*none, *shift]), mode)
        odd = A.interpolate(x, s32(1, 4, 5, 10), f32([*ones, 0.6, 1.4]), f32([*none, 0, 0.1]), mode)
        return [half, whole, odd]

    compare(tmp_path, body, PLANES)


def test_interpolate_at_coordinates(tmp_path: Path) -> None:
    at = f32([[0.5, 1.25], [2.9, -1.0], [1.0, 7.0]])
    ports: Ports = {"x": ((3, 4), "float32")}
    compare(tmp_path, lambda x: A.interpolate_coordinates(x, at, "linear"), ports)


# Products and compressed weights.


def test_matrix_products(tmp_path: Path) -> None:
    def body(x: Any, y: Any) -> Any:
        dense = A.broadcasting_add(A.broadcasting_batch_matmul(x, random(4, 5)), random(5))
        return [dense, A.batch_matmul(x, A.transpose(y, u32(0, 2, 1))), A.broadcasting_batch_matmul(random(2, 3), x)]

    graph = compare(tmp_path, body, XY)
    assert [len(each.inputs) for each in graph.nodes if each.op == "linear"] == [3]  # the sum is its bias


def _codes(*shape: int, high: int = 16) -> np.ndarray:
    return np.random.default_rng(5).integers(0, high, shape).astype(np.uint8)


def _blockwise() -> Any:
    scale = np.abs(random(6, 2)) + np.float32(0.125)
    scale = scale.astype(np.float16).astype(np.float32)
    middle = packed(np.full((6, 2), 8), A.uint4, 4)
    return A.blockwise_shift_scale(packed(_codes(6, 8), A.uint4, 4), scale, middle, np.zeros((6, 2), np.float32))


def _affine() -> Any:
    codes = (_codes(6, 8, high=200).astype(np.int16) - 100).astype(np.int8)
    scale = (np.abs(random(6)) + 0.01).astype(np.float16).astype(np.float32)
    return A.dequantize(codes, scale, np.full(6, 3, np.int8), np.zeros(6, np.float32), np.int32(0))


def _palette() -> Any:
    return A.lut_to_dense(packed(_codes(6, 8), A.uint4, 4), random(2, 1, 16, 1), np.int16(0))


def _sparse() -> Any:
    mask = np.random.default_rng(7).random((6, 8)) < 0.4
    values = random(int(mask.sum()))
    return A.sparse_with_bitmask_to_dense(
        A.build_sparse_with_bitmask(constant(values), packed(mask, ir.IntegerType.get_unsigned(1), 1))
    )


@pytest.mark.parametrize(
    ("weight", "form"), [(_blockwise, "blockwise"), (_affine, "affine"), (_palette, "palette"), (_sparse, "sparse")]
)
def test_compressed_weights_stay_so(tmp_path: Path, weight: Callable[[], Any], form: str) -> None:
    ports: Ports = {"x": ((3, 8), "float32")}
    graph = compare(tmp_path, lambda x: A.batch_matmul(x, A.transpose(weight(), u32(1, 0))), ports, atol=1e-2)
    (stored,) = [each.weight for each in graph.nodes if each.weight is not None]
    assert stored.encoded is not None
    assert stored.encoded.form == form


DOT = "2 -2 4 -7 1 0 -6 -3 3 1 -6 0 -2 -6 -6 1 5 5 5 6 7 3 -8 -1 1 2 -3 4 -2 0 2 -7"
DOT_INPUT = "-42 -7 5 25 -2 6 18 6 -34 10 -7 6 8 28 10 1 7 7 -17 -7 -27 -83 60 -7 -8 -24 15 -16 -9 18 3 42"


def test_a_palette_with_a_scale_is_summed_before_it_is_scaled(tmp_path: Path) -> None:
    """N67, in the form it was measured in: 32 terms of 4-bit codes, a table and a scale on an M5 Pro."""
    places = np.tile(np.array(DOT.split(), int) + 8, (2, 1))
    table = np.arange(-8, 8).astype(np.float32).reshape(1, 1, 16, 1)
    none = np.zeros((2, 1), np.float32)

    def body(x: Any) -> Any:
        looked_up = A.lut_to_dense(packed(places, A.uint4, 4), table, np.int16(0))
        weight = A.blockwise_shift_scale(looked_up, np.full((2, 1), 0.007476806640625, np.float32), none, none)
        return A.batch_matmul(x, A.transpose(weight, u32(1, 0)))

    graph = compare(tmp_path, body, {"x": ((1, 32), "float32")}, atol=1e-2)
    (stored,) = [each.weight for each in graph.nodes if each.weight is not None]
    assert stored.encoded is not None
    assert (stored.encoded.form, stored.encoded.scale is None) == ("palette", False)
    model = af.compile(graph, target="h17s")
    given = (np.array(DOT_INPUT.split(), float) / 256).reshape(1, 32)
    (found,) = model.run({model.program.inputs[0].name: given}).outputs.values()
    assert found.reshape(-1).tolist() == [-0.05987548828125] * 2


def test_quantised_numbers_are_the_graphs_own(tmp_path: Path) -> None:
    def body(x: Any) -> Any:
        scale, zero, less = np.float32(0.03125), np.int8(3), np.float32(0)
        axes = s32(0, 1, 2)
        return A.dequantize(A.quantize(x, scale, zero, less, axes), scale, zero, less, axes)

    graph = compare(tmp_path, body, X, -5, 5)
    assert [each.op for each in graph.nodes] == ["input", "quantize", "dequantize"]


def test_numbers_are_rounded_while_it_runs(tmp_path: Path) -> None:
    def body(x: Any) -> Any:
        scale, zero, less = np.float32(0.03125), np.int8(3), np.float32(0)
        axes = s32(0, 1, 2)
        return A.dequantize(A.quantize(x, scale, zero, less, axes), scale, zero, less, axes)

    compare(tmp_path, body, X, -5, 5)


SMALL = {"uint4": (0, 16, 4), "int4": (-8, 8, 4), "uint2": (0, 4, 2), "int2": (-2, 2, 2)}


@pytest.mark.parametrize("name", SMALL)
def test_small_whole_numbers_share_bytes(tmp_path: Path, name: str) -> None:
    low, high, bits = SMALL[name]
    codes = np.resize(np.arange(low, high), (2, 3, 4))
    compare(tmp_path, lambda x: A.add(x, A.cast(packed(codes, getattr(A, name), bits), np.float32)), X)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "bool_", "uint16", "int8"])
def test_constants_of_every_type(tmp_path: Path, name: str) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(np.float32) % 7
    compare(tmp_path, lambda x: A.add(x, A.cast(constant(values, dtype=getattr(A, name)), np.float32)), X)


def test_small_numbers_in_a_byte_each_are_refused(tmp_path: Path) -> None:
    body = lambda x: A.add(x, A.cast(constant(np.ones((2, 3, 4), np.uint8), dtype=A.uint4), np.float32))  # noqa: E731
    asset = build(tmp_path, body, X)
    with pytest.raises(
        LoadError, match=r"model.aimodel: constant_0 \(constant\): numbers of 4 bits are stored one to a byte"
    ):
        af.load(asset.path)


# Whole networks.


def _block(x: Any) -> Any:
    """A residual block and a head, as converters write them: pad, conv, bias, relu, pool, product."""

    def conv(value: Any, seed: int, stride: int = 1, kernels: int = 8) -> Any:
        wide = A.pad(value, u32(0, 0, 0, 0, 1, 1, 1, 1), np.float16(0))
        kernel = random(kernels, kernels if seed > 1 else 3, 3, 3, seed=seed, scale=0.2).astype(np.float16)
        made = A.conv2d(wide, kernel, u32(stride, stride), u32(1, 1), np.uint32(1))
        return A.broadcasting_add(made, random(1, kernels, 1, 1, seed=seed).astype(np.float16))

    first = A.relu(conv(x, 1, 2))
    second = A.relu(A.add(conv(A.relu(conv(first, 2)), 3), first))
    mean = A.reduce_mean(second, s32(2, 3))
    flat = A.reshape(mean, s32(1, 8))
    return A.softmax(
        A.broadcasting_add(A.batch_matmul(flat, random(8, 5).astype(np.float16)), random(5).astype(np.float16)),
        np.int32(-1),
    )


def test_a_small_network_on_a_chip(tmp_path: Path) -> None:
    ports: Ports = {"x": ((1, 3, 16, 16), "float16")}
    graph = compare(tmp_path, _block, ports, atol=5e-3)
    kinds = [each.op for each in graph.nodes if each.op != "const"]
    assert kinds.count("conv") == 3
    assert "pad" not in kinds
    assert kinds.count("linear") == 1
    feeds = numbers(ports)
    simulated = af.compile(graph, target="m1")(feeds["x"])
    np.testing.assert_allclose(
        np.asarray(simulated, np.float64).reshape(1, 5), af.evaluate(graph, feeds)[0], atol=5e-3
    )
    assert af.preflight(graph, "m1").native


def _attention(x: Any) -> Any:
    """One head of attention with a norm before it, all by elementary ops."""
    mean = A.reduce_mean(x, s32(-1))
    centred = A.broadcasting_sub(x, mean)
    spread = A.reduce_mean(A.mul(centred, centred), s32(-1))
    normed = A.broadcasting_mul(centred, A.rsqrt(A.broadcasting_add(spread, np.array(1e-3, np.float32))))
    query, key, value = (A.broadcasting_batch_matmul(normed, random(16, 16, seed=seed)) for seed in (1, 2, 3))
    scores = A.broadcasting_mul(A.batch_matmul(query, A.transpose(key, u32(0, 2, 1))), np.array(0.25, np.float32))
    mask = np.triu(np.full((6, 6), -1e4, np.float32), 1)[None]
    return A.add(x, A.batch_matmul(A.softmax(A.broadcasting_add(scores, mask), np.int32(-1)), value))


def test_attention(tmp_path: Path) -> None:
    compare(tmp_path, _attention, {"x": ((1, 6, 16), "float32")}, atol=5e-3)
