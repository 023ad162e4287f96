"""Each native layer, authored by its type, compiled for a chip that has it and run: against NumPy written here.

Where a layer moves or picks numbers the results are equal. Elsewhere the tolerance is a few steps of fp16 (2^-11) for
each rounding that the layer does, as its row says.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import aneforge as af
from aneforge.engine.layers import layer_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::aneforge.cost.estimate.DispatchFloorWarning"),
    pytest.mark.filterwarnings("ignore::aneforge.errors.PrecisionWarning"),
]
ROOT = Path(__file__).resolve().parents[1]
HALF_STEP = 2.0**-11


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    values = np.random.default_rng(seed + sum(shape)).standard_normal(shape) * scale
    return values.astype(np.float16).astype(np.float64)


class Row(NamedTuple):
    """One layer in one form."""

    type: str
    params: dict[str, Any]
    arrays: Sequence[np.ndarray]
    meaning: Callable[..., np.ndarray]
    chip: str = "m5"
    roundings: int = 0
    """How many steps of fp16 relative to the largest result it may be off; 0 where it must be equal."""
    constants: Sequence[Any] = ()
    """Bottoms behind the inputs that are stored."""
    native: bool = True


LANES = {"SortDimension": "Width", "VectorDimension": "Channel"}
X = normal(1, 6, 4, 8)
PIXELS = normal(1, 12, 4, 6)
ROWS = np.round(normal(1, 3, 1, 8, seed=5) * 2)
CLOUD, CENTRES = normal(1, 3, 1, 20), normal(1, 3, 1, 4, seed=3)
Q, K, V = (normal(1, 2, 12, 16, seed=place) for place in range(3))
MASK = np.where(np.tril(np.ones((12, 12))), 0.0, -1000.0)


def softmax_attention(q, k, v, mask=None, scale=0.25):
    result = np.empty_like(q)
    for head, query in np.ndindex(q.shape[1], q.shape[2]):
        scores = np.array([float(q[0, head, query] @ key) for key in k[0, head]]) * scale
        scores = scores if mask is None else scores + mask[query]
        weights = np.exp(scores - scores.max())
        result[0, head, query] = (weights / weights.sum()) @ v[0, head]
    return result


def ordered(x, keys, descending=False):
    """Columns of [1, C, 1, W] in the order of the key lanes, first key first; equal ones keep their order."""
    sign = -1 if descending else 1
    return sorted(range(x.shape[3]), key=lambda w: tuple(sign * x[0, lane, 0, w] for lane in keys))


def windows_of(x, size, step, pad, fill):
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    rows, columns = ((extent - size) // step + 1 for extent in padded.shape[2:])
    for c, i, j in np.ndindex(x.shape[1], rows, columns):
        yield (0, c, i, j), padded[0, c, i * step : i * step + size, j * step : j * step + size]


def arg_windows(x, size, step, pad, find, fill):
    picked = {place: find(window) for place, window in windows_of(x, size, step, pad, fill)}
    shape = tuple(1 + max(place[axis] for place in picked) for axis in range(4))
    return np.array([picked[place] for place in np.ndindex(*shape)], float).reshape(shape)


def channel_major(x, rows, columns):
    """Channel c of the result takes channels c * block + place: PixelShuffle."""
    n, c, h, w = x.shape
    out = np.zeros((n, c // (rows * columns), h * rows, w * columns))
    for channel, y, u in np.ndindex(*out.shape[1:]):
        place = (y % rows) * columns + u % columns
        out[0, channel, y, u] = x[0, channel * rows * columns + place, y // rows, u // columns]
    return out


def block_major(x, rows, columns):
    """Channel c of the result takes channels place * C + c: ChannelToSpace."""
    n, c, h, w = x.shape
    out = np.zeros((n, c // (rows * columns), h * rows, w * columns))
    for channel, y, u in np.ndindex(*out.shape[1:]):
        place = (y % rows) * columns + u % columns
        out[0, channel, y, u] = x[0, place * out.shape[1] + channel, y // rows, u // columns]
    return out


def inverse(move, x, rows, columns):
    """The rearrangement that ``move`` undoes, found by moving the numbers of the elements."""
    n, c, h, w = x.shape
    shape = (n, c * rows * columns, h // rows, w // columns)
    numbers = move(np.arange(x.size, dtype=float).reshape(shape), rows, columns).astype(int)
    out = np.zeros(x.size)
    out[numbers.reshape(-1)] = x.reshape(-1)
    return out.reshape(shape)


def batched(x, rows, columns):
    return np.concatenate([x[:, :, i::rows, j::columns] for i in range(rows) for j in range(columns)])


def correlated(x, template, groups, pads):
    top, bottom, left, right = pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    h, w = template.shape[2:]
    rows, columns = padded.shape[2] - h + 1, padded.shape[3] - w + 1
    out = np.zeros((1, groups, rows, columns))
    for channel, i, j in np.ndindex(x.shape[1], rows, columns):
        group = channel // (x.shape[1] // groups)
        out[0, group, i, j] += (padded[0, channel, i : i + h, j : j + w] * template[0, channel]).sum()
    return out


def furthest(points, count):
    rows = points[0, :, 0].T
    chosen = [0]
    while len(chosen) < count:
        nearest = [min(math.dist(row, rows[pick]) for pick in chosen) for row in rows]
        chosen.append(nearest.index(max(nearest)))
    return points[..., chosen]


def members(centres, points, radius):
    near = [[math.dist(p, c) <= radius for c in centres[0, :, 0].T] for p in points[0, :, 0].T]
    return np.array(near, float)[None, :, None, :]


def response(x, size, alpha, beta, k):
    out = x.copy()
    for c in range(size):
        first, last = max(0, c - (size - 1) // 2), min(x.shape[1], c + size // 2 + 1)
        out[:, c] = x[:, c] / (k + alpha * (x[:, first:last] ** 2).sum(axis=1)) ** beta
    return out


def ranged(x, axis, eps):
    low, high = x.min(axis, keepdims=True), x.max(axis, keepdims=True)
    return (x - low) / (high - low + eps)


def nearest(x, grid):
    """The element at the rounded place, zero outside."""
    out = np.zeros((1, x.shape[1], *grid.shape[2:]))
    for i, j in np.ndindex(*grid.shape[2:]):
        column, row = (math.floor(grid[0, place, i, j] + 0.5) for place in (0, 1))
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            out[0, :, i, j] = x[0, :, row, column]
    return out


GRID = (normal(1, 2, 3, 3, scale=2.0) + 2.0).astype(np.float16).astype(np.float64)
SIZES = {"TemplateWidth": 3, "TemplateHeight": 2}
SIDES = {"PadTop": 1, "PadBot": 0, "PadLeft": 2, "PadRight": 1}
PLACES = np.array([[5, 0, 3], [0, 3, 2], [7, 1, 0]], float)  # channel, row, column of three places
ROWS_CASES = [
    # Attention: products, scale, exponentials, sum, quotient, product.
    Row("SDPA", {"SubtractMax": True}, (Q, K, V), softmax_attention, "m1", 8, (0.25,)),
    Row("SDPA", {"SubtractMax": False}, (Q, K, V), softmax_attention, "m1", 8, (0.25,)),
    Row(
        "SDPA",
        {"SubtractMax": True},
        (Q, K, V),
        lambda q, k, v: softmax_attention(q, k, v, MASK),
        "m1",
        8,
        (np.float16(0.25), MASK),
    ),
    # Ranking: vectors move together.
    Row(
        "TopK",
        {"K": 5, "Type": "Max", "SortIndices": [1], **LANES},
        (ROWS,),
        lambda x: x[..., ordered(x, [1], True)[:5]],
    ),
    Row(
        "TopK",
        {"K": 2, "Type": "Min", "SortIndices": [2, 0], "Indices": True, **LANES},
        (ROWS,),
        lambda x: np.array(ordered(x, [2, 0])[:2], float).reshape(1, 1, 1, 2),
    ),
    Row(
        "Sort",
        {"Direction": "Descending", "SortIndices": [0, 1], **LANES},
        (ROWS,),
        lambda x: x[..., ordered(x, [0, 1], True)],
    ),
    Row(
        "Sort",
        {"Direction": "Ascending", "SortIndices": [2], "Indices": True, **LANES},
        (ROWS,),
        lambda x: np.array(ordered(x, [2]), float).reshape(1, 1, 1, 8),
    ),
    Row(  # every other axis is independent: each channel and column sorts its own rows
        "Sort",
        {"Direction": "Ascending", "SortDimension": "Height", "VectorDimension": "Width", "SortIndices": [3]},
        (X,),
        lambda x: np.stack([plane[np.argsort(plane[:, 3], kind="stable")] for plane in x[0]])[None],
    ),
    Row(
        "ArgMinMax",
        {"Mode": "SpatialArgMax", "KernelWidth": 3, "KernelHeight": 3, **dict.fromkeys(SIDES, 1)},
        (X,),
        lambda x: arg_windows(x, 3, 1, 1, np.argmax, -np.inf),
        "m1",
    ),
    Row(
        "ArgMinMax",
        {"Mode": "SpatialArgMin", "KernelWidth": 2, "KernelHeight": 2, "Step": [2, 2]},
        (X,),
        lambda x: arg_windows(x, 2, 2, 0, np.argmin, np.inf),
        "m1",
    ),
    Row("ArgMinMax", {"Mode": "ChannelArgMin"}, (X,), lambda x: x.argmin(1)[:, None].astype(float), "m1"),
    Row("GlobalArgMinMax", {"Type": "Max", "Dimension": "Width"}, (X,), lambda x: x.argmax(3)[..., None] * 1.0, "m1"),
    Row("GlobalArgMinMax", {"Type": "Min", "Dimension": "Channel"}, (X,), lambda x: x.argmin(1)[:, None] * 1.0),
    # Rearrangements in both conventions, with equal and unequal factors.
    Row("PixelShuffle", {"FactorX": 3, "FactorY": 2}, (PIXELS,), lambda x: channel_major(x, 2, 3), "m1"),
    Row("PixelShuffle", {"FactorX": 2, "FactorY": 2}, (PIXELS,), lambda x: channel_major(x, 2, 2), "m1", native=False),
    Row("ChannelToSpace", {"FactorX": 3, "FactorY": 2}, (PIXELS,), lambda x: block_major(x, 2, 3), "m1"),
    Row("PixelUnshuffle", {"FactorX": 3, "FactorY": 2}, (PIXELS,), lambda x: inverse(channel_major, x, 2, 3), "m1"),
    Row("SpaceToChannel", {"FactorX": 3, "FactorY": 2}, (PIXELS,), lambda x: inverse(block_major, x, 2, 3), "m1"),
    Row("SpaceToBatch", {"FactorX": 3, "FactorY": 2}, (PIXELS,), lambda x: batched(x, 2, 3), "m1"),
    Row(
        "BatchToSpace",
        {"FactorX": 3, "FactorY": 2},
        (normal(6, 2, 2, 2),),
        lambda x: np.array(
            [[[[x[y % 2 * 3 + u % 3, c, y // 2, u // 3] for u in range(6)] for y in range(4)] for c in range(2)]]
        ),
        "m1",
    ),
    # Normalisations: differences and a quotient; squares, a sum and a power.
    Row("MinMaxNormalization", {"Dimension": "Width", "Epsilon": 0.25}, (X,), lambda x: ranged(x, 3, 0.25), "m5", 4),
    Row("MinMaxNormalization", {"Dimension": "Height", "Epsilon": 0.25}, (X,), lambda x: ranged(x, 2, 0.25), "m5", 4),
    Row(
        "LocalResponseNormalization",
        {"Type": "Channel", "KernelChannel": 6, "Alpha": 0.5, "Beta": 0.75, "K": 2.0},
        (X,),
        lambda x: response(x, 6, 0.5, 0.75, 2.0),
        "m1",
        8,
    ),
    Row(
        "LocalResponseNormalization",
        {"Type": "Channel", "KernelChannel": 3, "Alpha": 0.5, "Beta": 0.75, "K": 2.0},
        (X,),
        lambda x: response(x, 3, 0.5, 0.75, 2.0),
        "m1",
        8,
    ),
    Row("GOC", {"ScaleScalar": 2.0, "BiasScalar": -1.0}, (X,), lambda x: 2 * x - 1, "m1", 1, native=False),
    Row("DynamicGOC", {}, (X, X * 0.5), lambda x, b: x + b, "m1", 1, native=False),
    Row("DynamicGOC", {"BiasOnly": False}, (X, X, X), lambda x, g, b: x * g + b, "m1", 2, native=False),
    Row("ScaledElementWise", {"Type": "Max", "Scale": 2.0}, (X, X[::, ::-1]), lambda a, b: 2 * np.maximum(a, b), "m1"),
    # Geometry.
    Row(
        "CrossProduct",
        {},
        (normal(1, 3, 1, 1), normal(1, 3, 1, 1, seed=2)),
        lambda a, b: np.cross(a.ravel(), b.ravel()).reshape(1, 3, 1, 1),
        "m1",
        4,
    ),
    Row(
        "CrossCorrelation",
        {**SIZES, **SIDES, "NumGroups": 3},
        (X, normal(1, 6, 2, 3)),
        lambda x, t: correlated(x, t, 3, (1, 0, 2, 1)),
        "m1",
        2,
    ),
    Row("CrossCorrelation", SIZES, (X, normal(1, 6, 2, 3)), lambda x, t: correlated(x, t, 1, (0,) * 4), "m5", 2),
    Row(
        "CostVolume",
        {"DisparityRange": 2, "DisparityDirection": 0, "ScaleFactorX": 1.0},
        (normal(1, 1, 3, 5), normal(1, 1, 3, 8)),
        lambda a, r: np.abs(np.stack([a[0, 0] - r[0, 0, :, d : d + 5] for d in range(3)]))[None],
        "m1",
        1,
    ),
    Row("FurthestPointSampling", {"CentroidCount": 6}, (CLOUD,), lambda p: furthest(p, 6), "m1"),
    Row("RadiusSearch", {"Radius": 1.5}, (CENTRES, CLOUD), lambda c, p: members(c, p, 1.5), "m1"),
    # Movement.
    Row(
        "InputView",
        {"Dimension": "Channel", "Offset": 4, "Size": 3, "Step": -2},
        (X,),
        lambda x: x[:, [4, 2, 0]],
        "m1",
    ),
    Row("InputView", {"Dimension": "Width", "Offset": 1, "Size": 3, "Step": 2}, (X,), lambda x: x[..., 1:6:2], "m2"),
    Row(
        "DynamicSlice",
        {
            "DynamicSliceAxisOrder": ["Width", "Height"],
            "DynamicSliceInfo": [{"Coordinate": "Height", "SliceSize": 2}, {"Coordinate": "Width", "SliceSize": 3}],
        },
        (X, np.array([4.0, 1.0])),
        lambda x, at: x[:, :, 1:3, 4:7],
    ),
    Row(
        "Gather",
        {"GatherNDAxes": ["Channel", "Height", "Width"]},
        (normal(1, 8, 4, 5),),
        lambda x: np.array([x[0, c, h, w] for c, h, w in PLACES.astype(int)]).reshape(1, 3, 1, 1),
        "m1",
        constants=(PLACES.T.reshape(1, 3, 3, 1),),
    ),
    Row(
        "Gather",
        {"GatherNDAxes": ["Height", "Width"]},
        (normal(1, 8, 4, 5),),
        lambda x: np.stack([x[0, :, h, w] for _, h, w in PLACES.astype(int)]).reshape(1, 3, 1, 8),
        constants=(PLACES.T[1:].reshape(1, 2, 3, 1),),
    ),
    Row(
        "Gather", {"GatherNDAxes": ["Width"]}, (X,), lambda x: x[..., [7, 0, 0]], constants=([7, 0, 0],), native=False
    ),
    Row("Flatten", {}, (X,), lambda x: x.reshape(-1), "m1"),
    Row("KernelRasterizer", {"KernelWidth": 1, "KernelHeight": 1}, (X,), lambda x: x),
    Row("Tile", {"Width": 2, "Channel": 3}, (X,), lambda x: np.tile(x, (1, 3, 1, 2)), "m1", native=False),
    Row("Concat", {"Dimension": "Height"}, (X, X * 2), lambda a, b: np.concatenate([a, b], 2), "m1", native=False),
    Row(
        "Broadcast",
        {"BroadcastInfo": [{"Dimension": "Width", "Size": 5}]},
        (normal(1, 4, 3, 1),),
        lambda x: np.repeat(x, 5, axis=3),
        "m1",
        native=False,
    ),
    Row(  # one kernel for each channel, two rows and columns for each pixel
        "Conv",
        {"Type": "ChannelWiseDeConv", "KernelWidth": 2, "KernelHeight": 2, "Step": [2, 2]},
        (X,),
        lambda x: np.stack([np.kron(plane, np.full((2, 2), c + 1.0)) for c, plane in enumerate(x[0])])[None],
        "m1",
        1,
        constants=(np.arange(1.0, 7.0)[:, None, None, None] * np.ones((6, 1, 2, 2)),),
        native=False,
    ),
    # The texture engine.
    Row("Resample", {"SamplingMethod": "NearestNeighbor"}, (X, GRID), nearest, "m2"),
]


@pytest.mark.parametrize("row", ROWS_CASES, ids=[f"{place}-{row.type}" for place, row in enumerate(ROWS_CASES)])
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_layer_gives_what_it_means(row, mode):
    inputs = [af.input(array.shape, name=f"x{place}") for place, array in enumerate(row.arrays)]
    out = af.bridge(row.type, [*inputs, *row.constants], name="layer", **row.params)
    model = af.compile(out, target=row.chip, mode=mode)
    result = np.asarray(model(*row.arrays), np.float64)
    wanted = np.asarray(row.meaning(*(array.astype(np.float16).astype(np.float64) for array in row.arrays)))
    assert result.shape == wanted.shape
    if row.roundings:
        bound = row.roundings * HALF_STEP * max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(result, wanted, rtol=0, atol=bound)
    else:
        np.testing.assert_array_equal(result, wanted)
    np.testing.assert_allclose(af.evaluate(out, row.arrays), wanted, rtol=0, atol=1e-9)
    assert isinstance(model, af.SegmentedModel) == row.native


@pytest.mark.parametrize("row", [row for row in ROWS_CASES if row.native], ids=lambda row: row.type)
def test_a_native_layer_is_a_segment_that_a_netplist_can_name(row):
    inputs = [af.input(array.shape, name=f"x{place}") for place, array in enumerate(row.arrays)]
    out = af.bridge(row.type, [*(x.relu() for x in inputs), *row.constants], name="layer", **row.params).abs()
    model = af.compile(out, target=row.chip)
    assert isinstance(model, af.SegmentedModel)
    (cut,) = model.cuts
    assert cut.layer == row.type
    assert "layer" in cut.nodes
    native = next(segment for segment in model.segments if segment.kind == "native")
    assert len(native.layers) == 1
    spelled = layer_of(model.program.layers[native.layers[0]].ops[0])
    assert spelled is not None
    assert spelled.type == row.type


def test_rows_are_sorted_on_their_own():
    """The layer has one order for all lanes of a vector; rows lie so that each is a line of vectors of one."""
    rows = normal(5, 9)
    x = af.input((5, 9), name="x")
    for out, wanted in (
        (af.sort(x), np.sort(rows, axis=1)),
        (af.sort(x, True, True), np.argsort(-rows, axis=1, kind="stable")),
        (af.topk(x, 5), np.sort(rows, axis=1)[:, ::-1][:, :5]),
    ):
        np.testing.assert_array_equal(af.compile(out, target="m5")(rows), wanted)


@pytest.mark.parametrize("form", ["sort", "topk", "argmax", "global"])
def test_positions_are_numbers_of_fp16(form):
    """N45: exact below 2048, and the nearest number of fp16 above."""
    x = af.input((1, 1, 1, 2048), name="x")
    place = {"SortDimension": "Width", "VectorDimension": "Channel", "SortIndices": [0], "Indices": True}
    out = {
        "sort": lambda: af.bridge("Sort", [x], Direction="Ascending", **place),
        "topk": lambda: af.bridge("TopK", [x], K=2, Type="Max", **place),
        "argmax": lambda: af.bridge("ArgMinMax", [x], Mode="SpatialArgMax", KernelWidth=2048, KernelHeight=1),
        "global": lambda: af.bridge("GlobalArgMinMax", [x], Type="Max", Dimension="Width"),
    }[form]()
    given = np.zeros((1, 1, 1, 2048))
    given[..., 2047] = 1.0
    assert 2047.0 in af.compile(out, target="m5")(given)


def test_both_channel_conventions_differ():
    x = af.input((1, 8, 2, 2), name="x")
    given = np.arange(32.0).reshape(1, 8, 2, 2)
    shuffled, blocks = (
        af.compile(af.bridge(name, [x], FactorX=2, FactorY=2), target="m1")(given)
        for name in ("PixelShuffle", "ChannelToSpace")
    )
    np.testing.assert_array_equal(shuffled, channel_major(given, 2, 2))
    np.testing.assert_array_equal(blocks, block_major(given, 2, 2))
    assert (shuffled != blocks).any()


def test_attention_without_its_maximum_overflows():
    """N29: exp is infinite above 11.09; the quotient of two infinities is zero (N32)."""
    q = np.full((1, 1, 4, 4), 4.0)
    inputs = [af.input(q.shape, name=name) for name in "qkv"]
    with pytest.warns(af.PrecisionWarning, match=r"SubtractMax is false.*Write SubtractMax=True"):
        loose = af.bridge("SDPA", [*inputs, 1.0])
    kept = af.bridge("SDPA", [*inputs, 1.0], SubtractMax=True)
    v = np.ones_like(q)
    assert (af.compile(kept, target="m1")(q, q, v) == 1.0).all()
    assert (af.compile(loose, target="m1")(q, q, v) == 0.0).all()


# A start that a run computes.


def test_a_slice_starts_where_a_tensor_says():
    x, at = af.input((4, 6), name="x"), af.input((1,), name="at")
    model = af.compile(af.dynamic_slice(x, at, 3), target="m5")
    given = normal(4, 6)
    for start, first in ((0.0, 0), (7.0, 7), (20.0, 20), (23.0, 21), (-2.0, 0), (1.9, 1)):  # kept inside (U92)
        np.testing.assert_array_equal(model(given, np.array([start])), given.ravel()[first : first + 3])
    fixed = af.compile(af.dynamic_slice(x, 5, 3), target="m5")
    np.testing.assert_array_equal(fixed(given), given.ravel()[5:8])


def test_a_start_that_fp16_does_not_hold_is_refused():
    with pytest.raises(af.GraphError, match=r"start 2049 is not a number of fp16"):
        af.dynamic_slice(af.input((4096,)), 2049, 2)


# State.


def ring_model(offset=3, chip="m2"):
    x, state = af.input((1, 2, 1, 3), name="x"), af.live_state((1, 2, 1, 8), "cache")
    written = af.ring_write(x, state, offset)
    return af.compile([af.ring_read(written, 2, 5).named("read"), af.ring_read(state, 0, 8).named("old")], target=chip)


def test_a_state_lives_from_call_to_call():
    model = ring_model(offset=6)
    first, second = normal(1, 2, 1, 3), normal(1, 2, 1, 3, seed=4)
    expected = np.zeros((1, 2, 1, 8))
    for given in (first, second):
        read, old = model(given)
        np.testing.assert_array_equal(old, expected)  # what the call before left
        expected[..., [6, 7, 0]] = given  # around the end
        np.testing.assert_array_equal(read, expected[..., 2:7])
        np.testing.assert_array_equal(model.state("cache"), expected)
    model.reset()
    assert not model.state("cache").any()
    with pytest.raises(af.AneforgeError, match=r"'kash': not a state of the program. Choose one: cache"):
        model.state("kash")


def test_a_batch_of_calls_keeps_the_state_in_order():
    model, again = ring_model(), ring_model()
    given = np.stack([normal(1, 2, 1, 3, seed=place) for place in range(4)])
    alone = [again(sample) for sample in given]
    for done, (read, old) in zip(model.batch({"x": given}), alone, strict=True):
        np.testing.assert_array_equal(done.outputs["read"], read)
        np.testing.assert_array_equal(done.outputs["old"], old)


def test_two_models_do_not_share_a_state():
    one, two = ring_model(), ring_model()
    one(np.ones((1, 2, 1, 3)))
    assert one.state("cache").any()
    assert not two.state("cache").any()


def test_a_ring_on_the_m1_is_refused():
    with pytest.raises(af.CompileError, match=r"ring_buffer_writer is not available on h13|Circular buffer"):
        ring_model(chip="m1")


def test_a_writer_needs_a_state():
    x = af.input((1, 2, 1, 3))
    with pytest.raises(af.GraphError, match=r"the buffer comes from input; it must be af.live_state"):
        af.ring_write(x, af.input((1, 2, 1, 8)))
    with pytest.raises(af.GraphError, match=r"does not fit the state"):
        af.ring_write(x, af.live_state((1, 2, 1, 2), "short"))


# Segments.


def test_cuts_show_what_crosses():
    q = af.input((1, 2, 4, 8), name="q")
    attended = af.sdpa(q.relu().named("front"), q, q).named("attn")
    model = af.compile((attended * 2.0).tanh().named("out"), target="m1")
    assert isinstance(model, af.SegmentedModel)
    assert [segment.kind for segment in model.segments] == ["compute", "native", "compute"]
    (cut,) = model.cuts
    assert (cut.layer, cut.segment, cut.before, cut.behind) == ("SDPA", 1, (0,), (2,))
    assert {value.name for value in cut.reads} == {"front", "q"}
    assert [value.shape for value in cut.gives] == [(1, 1, 4, 2, 8)]
    assert str(model).rstrip().endswith("gives attn 1x1x4x2x8 for segment 2")
    assert cut.to_json()["layer"] == "SDPA"
    assert model.n_netplist == 1


def test_each_native_layer_is_a_segment():
    x = af.input((1, 4, 4, 4), name="x")
    model = af.compile(af.space_to_channel(af.minmax_norm(x), 2), target="m5")
    assert isinstance(model, af.SegmentedModel)
    assert [cut.layer for cut in model.cuts] == ["MinMaxNormalization", "SpaceToChannel"]
    assert [segment.kind for segment in model.segments] == ["native", "native"]


def test_an_ordinary_layer_cuts_nothing():
    x = af.input((1, 4, 4, 4), name="x")
    model = af.compile(af.bridge("Neuron", [af.bridge("Tile", [x], Width=2)], Type="ReLU"), target="m1")
    assert not isinstance(model, af.SegmentedModel)


def test_linear_sampling_fails_code_generation_when_it_is_authored():
    x = af.input((1, 2, 4, 4), name="x")
    out = af.bridge("Resample", [x, np.zeros((1, 2, 3, 3))], SamplingMethod="Linear")
    with pytest.raises(af.CompileError, match="sampling method Linear fails code generation"):
        af.compile(out, target="m2")


# The example of listing 26.3.


def example(*arguments: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / "hidden_layers.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def test_listing_26_3_runs_on_the_m1():
    text = example()
    assert "3 segments on h13, 1 of them native layers" in text
    assert "SDPA (attn) reads q 1x1x197x8x64" in text
    difference = float(text.rstrip().rpartition(" ")[2])
    assert 0 < difference < 8 * HALF_STEP


def test_with_a_texture_layer_the_m1_refuses_and_the_m2_compiles():
    text = example("--texture")
    assert "M1 refuses it: warp: affine" in text
    assert '"affine transform is not supported on this architecture"' in text
    assert "5 segments on h14g, 2 of them native layers" in text
    assert "finite: True" in text
