"""ONNX ops in forms that the standard's own node tests do not cover: against ONNX Runtime or the reference evaluator,
on the engine's graph language alone unless a test says otherwise."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats.onnx.node import OnnxNode, apply
from aneforge.formats.onnx.table import PREFERRED

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

MICROSOFT = "com.microsoft"
KINDS = {"f": TensorProto.FLOAT, "b": TensorProto.BOOL, "i": TensorProto.INT64}


def half(rng, *shape, scale=0.5):
    """Numbers that fp16 holds, so that both sides compute with the same weights."""
    return (rng.standard_normal(shape) * scale).astype(np.float16).astype(np.float32)


def model_of(node, feeds, weights, opset=21):
    ports = [helper.make_tensor_value_info(name, KINDS[each.dtype.kind], each.shape) for name, each in feeds.items()]
    results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph([node], "net", ports, results, stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def by_runtime(model, feeds):
    """ONNX Runtime without its own rewriting."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def loaded(tmp_path, model, on_engine=True):
    file = tmp_path / "model.onnx"
    onnx.save(model, str(file))
    graph = af.load(file)
    hosts = [node.attrs["reason"] for node in graph.nodes if node.op == "host"]
    assert not (on_engine and hosts), hosts
    return graph


def same(tmp_path, node, feeds, weights=None, opset=21, tolerance=2e-3, reference=None):
    """The graph in float64 against a reference that knows nothing of it."""
    model = model_of(node, feeds, weights or {}, opset)
    graph = loaded(tmp_path, model)
    names = graph.names()
    found = af.evaluate(graph, [feeds[names[each.uid]] for each in graph.inputs])
    wanted = reference if reference is not None else by_runtime(model, feeds)
    assert len(found) == len(wanted)
    for one, two in zip(found, wanted, strict=True):
        assert np.asarray(one).shape == two.shape or two.shape == ()
        np.testing.assert_allclose(np.asarray(one).reshape(two.shape), two, rtol=tolerance, atol=tolerance)
    return graph


def by_reference(node, feeds, weights=None, opset=21):
    return ReferenceEvaluator(model_of(node, feeds, weights or {}, opset)).run(None, feeds)


# Convolutions and pools.

CONVOLUTIONS = [
    ((2, 4, 9), (6, 2, 3), {"group": 2, "strides": [2], "pads": [2, 1], "dilations": [2]}),
    ((2, 4, 7, 8), (6, 4, 3, 2), {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]}),
    ((2, 4, 5, 6, 7), (6, 4, 3, 2, 3), {"strides": [2, 1, 2], "pads": [1, 0, 1, 2, 1, 0]}),
    ((1, 4, 6, 5, 6), (6, 2, 2, 3, 1), {"group": 2, "dilations": [2, 1, 1], "pads": [1, 1, 0, 1, 1, 0]}),
    ((2, 3, 5, 4, 6), (6, 1, 3, 3, 3), {"group": 3, "auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
]


@pytest.mark.parametrize(("shape", "kernel", "settings"), CONVOLUTIONS)
@pytest.mark.parametrize("computed", [False, True])
def test_convolutions_over_one_to_three_axes(tmp_path, shape, kernel, settings, computed):
    rng = np.random.default_rng(1)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv", **settings)
    weights = {"w": half(rng, *kernel), "b": half(rng, kernel[0])}
    feeds = {"x": half(rng, *shape)}
    graph = same(tmp_path, node, feeds | (weights if computed else {}), {} if computed else weights)
    kinds = {each.op for each in graph.nodes}
    wanted = "conv3d" if len(shape) == 5 else "dynamic_conv" if computed else "conv"  # a volume keeps its rank (C08)
    assert {"conv", "dynamic_conv", "conv3d"} & kinds == {wanted}


TRANSPOSED = [
    ((2, 4, 5), (4, 3, 3), {"strides": [2], "pads": [1, 1], "output_padding": [1]}),
    ((1, 4, 5, 4), (4, 3, 3, 3), {"strides": [2, 3], "output_padding": [1, 2]}),
    ((1, 4, 5, 4), (4, 3, 3, 3), {"strides": [3, 2], "output_shape": [16, 9]}),
    ((1, 4, 5, 4), (4, 3, 4, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 4, 5, 4), (4, 3, 4, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((2, 4, 3, 4, 5), (4, 3, 3, 2, 3), {"strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0], "group": 2}),
    ((1, 4, 3, 4, 2), (4, 2, 2, 3, 3), {"strides": [3, 2, 2], "output_padding": [2, 1, 0], "dilations": [2, 1, 1]}),
]


@pytest.mark.parametrize(("shape", "kernel", "settings"), TRANSPOSED)
def test_transposed_convolutions_and_what_their_ends_hold(tmp_path, shape, kernel, settings):
    rng = np.random.default_rng(2)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], "up", **settings)
    channels = kernel[1] * settings.get("group", 1)
    same(tmp_path, node, {"x": half(rng, *shape)}, {"w": half(rng, *kernel), "b": half(rng, channels)})


POOLS = [
    ((1, 2, 9), {"kernel_shape": [3], "strides": [2], "pads": [1, 0], "ceil_mode": 1}),
    ((1, 2, 9, 8), {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [2, 1], "pads": [1, 1, 1, 0]}),
    ((1, 2, 9, 8), {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((2, 2, 6, 7, 8), {"kernel_shape": [2, 3, 2], "strides": [2, 2, 3], "pads": [1, 1, 0, 0, 1, 1]}),
    ((2, 2, 7, 7, 8), {"kernel_shape": [3, 3, 2], "strides": [2, 2, 3], "ceil_mode": 1}),
    ((1, 2, 7, 7, 8), {"kernel_shape": [2, 2, 2], "dilations": [2, 1, 3], "strides": [1, 2, 1]}),
]


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "counted", "LpPool"])
@pytest.mark.parametrize(("shape", "settings"), POOLS)
def test_pools_over_one_to_three_axes_with_gaps(tmp_path, kind, shape, settings):
    if kind == "LpPool" and settings.get("ceil_mode"):
        pytest.skip("ONNX Runtime rounds its number of windows down")
    rng = np.random.default_rng(3)
    more: dict[str, Any] = {"count_include_pad": 1} if kind == "counted" else {"p": 3} if kind == "LpPool" else {}
    node = helper.make_node("AveragePool" if kind == "counted" else kind, ["x"], ["y"], "pool", **settings, **more)
    same(tmp_path, node, {"x": half(rng, *shape)}, opset=22)


def test_a_convolution_over_three_axes_runs_on_a_chip(tmp_path):
    rng = np.random.default_rng(4)
    node = helper.make_node("Conv", ["x", "w"], ["y"], "video", pads=[1, 1, 1, 1, 1, 1])
    feeds, weights = {"x": half(rng, 1, 4, 4, 8, 8)}, {"w": half(rng, 8, 4, 3, 3, 3, scale=0.1)}
    graph = same(tmp_path, node, feeds, weights)
    wanted = af.evaluate(graph, [feeds["x"]])[0]
    for model, chip in ((graph, "m6"), (af.apply_form(graph, "conv3d-as-planes"), "m1")):
        found = np.asarray(af.compile(model, target=chip)(feeds["x"].astype(np.float16)))
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=4e-3)


# Resampling.


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scale", [0.6, 1.7, 2.0, 3.0])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]
)
def test_resizes_by_scales(tmp_path, mode, scale, coordinates):
    rng = np.random.default_rng(5)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=coordinates)
    feeds, weights = {"x": half(rng, 1, 2, 5, 7)}, {"s": np.array([1, 1, scale, 1.3], np.float32)}
    same(tmp_path, node, feeds, weights, tolerance=4e-3, reference=by_reference(node, feeds, weights))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [[3, 4], [11, 3], [5, 14]])
@pytest.mark.parametrize("exclude", [0, 1])
def test_resizes_without_aliases(tmp_path, mode, sizes, exclude):
    rng = np.random.default_rng(6)
    settings = {"mode": mode, "antialias": 1, "exclude_outside": exclude}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **settings)
    feeds, weights = {"x": half(rng, 1, 2, 8, 9)}, {"s": np.array([1, 2, *sizes])}
    same(tmp_path, node, feeds, weights, tolerance=4e-3, reference=by_reference(node, feeds, weights))


NATIVE = [
    (
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        [8, 12],
        "upsample",
    ),
    ({"mode": "nearest"}, [8, 12], "upsample_nearest_neighbor"),
    ({"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, [7, 9], "resize_n"),
    ({"mode": "linear"}, [8, 12], "upsample_bilinear"),
    ({"mode": "linear"}, [7, 9], "resize_bilinear"),
    ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, [7, 9], "resize_bilinear"),
    ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, [7, 9], "matmul"),
]


@pytest.mark.parametrize(("settings", "sizes", "kind"), NATIVE)
def test_a_resize_is_the_engines_own_where_it_means_the_same(tmp_path, settings, sizes, kind):
    rng = np.random.default_rng(7)
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **settings)
    graph = same(tmp_path, node, {"x": half(rng, 1, 2, 4, 6)}, {"s": np.array([1, 2, *sizes])})
    kinds = [each.op for each in graph.nodes if each.op not in ("input", "const", "reshape")]
    assert kinds[0].startswith(kind)
    assert kind == "matmul" or len(kinds) == 1


@pytest.mark.parametrize(("shape", "grid"), [((2, 3, 5, 6), (2, 4, 3, 2)), ((1, 2, 3, 4, 5), (1, 2, 3, 4, 3))])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("corners", [0, 1])
def test_a_known_grid(tmp_path, shape, grid, padding, mode, corners):
    rng = np.random.default_rng(8)
    settings = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    node = helper.make_node("GridSample", ["x", "g"], ["y"], **settings)
    places = rng.uniform(-1.6, 1.6, grid).astype(np.float32)
    feeds, weights = {"x": half(rng, *shape)}, {"g": places}
    wanted = by_reference(node, feeds, weights)
    if (mode, padding) == ("cubic", "border"):
        # The reference evaluator moves the place to the border; ONNX Runtime and PyTorch move each of its taps.
        if len(shape) > 4:
            pytest.skip("only the reference evaluator has it, and nothing else agrees with it")
        wanted = by_runtime(model_of(node, feeds, weights, opset=20), feeds)
    same(tmp_path, node, feeds, weights, tolerance=4e-3, reference=wanted)


def test_known_regions(tmp_path):
    rng = np.random.default_rng(9)
    settings = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.5}
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], **settings)
    regions = np.array([[1, 1, 9, 11], [0, 3, 14, 8], [-3, 2, 20, 30]], np.float32)
    same(tmp_path, node, {"x": half(rng, 2, 3, 6, 7)}, {"r": regions, "i": np.array([0, 1, 1])})


# Picking and replacing.


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_places_that_are_named_twice(tmp_path, reduction):
    rng = np.random.default_rng(10)
    places = np.array([[0, 2, 2, 1], [3, 3, 3, 0]])
    updates = half(rng, 2, 4)
    reference = half(rng, 5, 4)
    wanted = reference.copy()
    join = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    for row, column in np.ndindex(2, 4):
        at = places[row, column], column
        wanted[at] = join(wanted[at], updates[row, column])
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=0, reduction=reduction)
    feeds = {"x": reference, "u": updates}
    same(tmp_path, node, feeds, {"i": places}, reference=[wanted])


@pytest.mark.parametrize(("shape", "places", "batch"), [((4, 5, 3), (2, 3, 2), 0), ((2, 4, 5), (2, 3, 1), 1)])
def test_lines_picked_by_their_places(tmp_path, shape, places, batch):
    rng = np.random.default_rng(11)
    limits = shape[batch : batch + places[-1]]
    indices = np.stack([rng.integers(-limit, limit, places[:-1]) for limit in limits], axis=-1)
    node = helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=batch)
    same(tmp_path, node, {"x": half(rng, *shape)}, {"i": indices})


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("largest", [0, 1])
def test_the_first_of_an_order_along_any_axis(tmp_path, axis, largest):
    rng = np.random.default_rng(12)
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=axis, largest=largest)
    values = rng.permutation(5 * 4 * 6).reshape(5, 4, 6).astype(np.float32)
    same(tmp_path, node, {"x": values}, {"k": np.array([3])})


def test_positions_that_fp16_cannot_count_stay_on_the_host(tmp_path):
    node = helper.make_node("ArgMax", ["x"], ["y"], "pick", axis=1, keepdims=0)
    rng = np.random.default_rng(13)
    feeds = {"x": half(rng, 2, 5000)}
    graph = loaded(tmp_path, model_of(node, feeds, {}), on_engine=False)
    (host,) = [each for each in graph.nodes if each.op == "host"]
    assert "2,048" in host.attrs["reason"]
    assert np.array_equal(af.evaluate(graph, [feeds["x"]])[0], feeds["x"].argmax(1))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_wider_than_the_tensor(tmp_path, mode):
    rng = np.random.default_rng(14)
    node = helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)
    feeds, wide = {"x": half(rng, 3, 4)}, [[4, 5], [1, 6]]
    wanted = np.pad(feeds["x"], [(4, 1), (5, 6)], mode=mode)
    same(tmp_path, node, feeds, {"p": np.array(wide).reshape(-1)}, reference=[wanted])


def test_windows_of_a_picture_and_back(tmp_path):
    """[N, H/w, w, W/w, w, C] with the windows in front, as shifted-window models have it."""
    rng = np.random.default_rng(16)
    node = helper.make_node
    nodes = [
        node("Reshape", ["x", "cut"], ["six"], "cut"),
        node("Transpose", ["six"], ["front"], "front", perm=[0, 1, 3, 2, 4, 5]),
        node("Reshape", ["front", "windows"], ["w"], "windows"),
        node("Relu", ["w"], ["r"], "work"),
        node("Reshape", ["r", "apart"], ["seven"], "apart"),
        node("Transpose", ["seven"], ["back"], "back", perm=[0, 1, 3, 2, 4, 5]),
        node("Reshape", ["back", "whole"], ["y"], "whole"),
    ]
    shapes = {"cut": [1, 2, 4, 2, 4, 6], "windows": [-1, 16, 6], "apart": [1, 2, 2, 4, 4, 6], "whole": [1, 8, 8, 6]}
    stored = [numpy_helper.from_array(np.array(each), name) for name, each in shapes.items()]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 8, 6])]
    graph = helper.make_graph(nodes, "net", ports, [onnx.ValueInfoProto(name="y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = loaded(tmp_path, model)
    numbers = half(rng, 1, 8, 8, 6)
    assert np.array_equal(af.evaluate(found, [numbers])[0], np.maximum(numbers, 0))
    assert all(each.ndim <= 5 for each in found.nodes)
    assert "work" in {each.name for each in found.nodes}


# Numbers and truth values.


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_both_ways_to_say_gelu(tmp_path, approximate):
    node = helper.make_node("Gelu", ["x"], ["y"], approximate=approximate)
    feeds = {"x": np.linspace(-6, 6, 400, dtype=np.float32).reshape(4, 100)}
    exact = by_reference(helper.make_node("Gelu", ["x"], ["y"]), feeds)  # the engine has one table for both (N42)
    same(tmp_path, node, feeds, reference=exact, tolerance=1e-5)


@pytest.mark.parametrize("power", [-1.0, -0.5, 0.5, 2.0, 3.0, 4.0, 1.5])
def test_known_powers(tmp_path, power):
    x = np.linspace(0.25, 3, 12, dtype=np.float32)
    x = np.concatenate([-x, x]) if power == int(power) else x
    node = helper.make_node("Pow", ["x", "p"], ["y"])
    same(tmp_path, node, {"x": x}, {"p": np.array(power, np.float32)})


def test_a_mask_beyond_fp16_is_what_the_chip_sees(tmp_path):
    rng = np.random.default_rng(17)
    node = helper.make_node("Where", ["c", "x", "m"], ["y"])
    feeds = {"c": rng.random((3, 4)) > 0.5, "x": half(rng, 3, 4)}
    lowest = np.array(np.finfo(np.float32).min, np.float32)
    wanted = np.where(feeds["c"], feeds["x"], np.float32(-np.inf))
    same(tmp_path, node, feeds, {"m": lowest}, reference=[wanted])


def test_truth_values_in_and_out(tmp_path):
    rng = np.random.default_rng(18)
    a, b = rng.random((2, 3)) > 0.5, rng.random((2, 3)) > 0.5
    for kind, wanted in (("And", a & b), ("Or", a | b), ("Xor", a ^ b), ("Equal", a == b)):
        same(tmp_path, helper.make_node(kind, ["a", "b"], ["y"]), {"a": a, "b": b}, reference=[wanted])
    node = helper.make_node("Where", ["a", "b", "c"], ["y"])
    same(tmp_path, node, {"a": a, "b": b}, {"c": ~a}, reference=[np.where(a, b, ~a)])
    same(tmp_path, helper.make_node("Not", ["a"], ["y"]), {"a": a}, reference=[~a])


def test_whole_numbers_divide_to_whole_numbers(tmp_path):
    """A position is a number of the graph; what divides it says that it is a whole one."""
    x = np.eye(7, dtype=np.float32)
    pick = helper.make_node("ArgMax", ["x"], ["i"], "pick", axis=1, keepdims=0)
    half_of = helper.make_node("Div", ["i", "two"], ["y"], "half")
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [7, 7])]
    stored = [numpy_helper.from_array(np.array([2]), "two")]
    graph = helper.make_graph([pick, half_of], "net", ports, [onnx.ValueInfoProto(name="y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = af.evaluate(loaded(tmp_path, model, on_engine=False), [x])[0]
    assert found.tolist() == [0, 0, 1, 1, 2, 2, 3]


# Products and signals.


@pytest.mark.parametrize("equation", ["ij,jk,kl->il", "bij,bjk,k->bi", "a,b,c->abc"])
def test_products_of_three(tmp_path, equation):
    rng = np.random.default_rng(19)
    sizes = dict(zip("abcijkl", (2, 3, 4, 2, 3, 4, 5), strict=True))
    terms = equation.partition("->")[0].split(",")
    feeds = {f"x{i}": half(rng, *(sizes[each] for each in term)) for i, term in enumerate(terms)}
    node = helper.make_node("Einsum", list(feeds), ["y"], equation=equation)
    same(tmp_path, node, feeds)


@pytest.mark.parametrize(("inverse", "onesided", "parts"), [(0, 0, 1), (0, 1, 1), (0, 0, 2), (1, 0, 2), (1, 1, 2)])
@pytest.mark.parametrize("length", [None, 6, 11])
def test_fourier_transforms(tmp_path, inverse, onesided, parts, length):
    rng = np.random.default_rng(20)
    inputs = ["x", "n" if length else "", "a"]
    node = helper.make_node("DFT", inputs, ["y"], inverse=inverse, onesided=onesided)
    feeds = {"x": half(rng, 2, 8, 3, parts)}
    weights = {"a": np.array(1)} | ({"n": np.array(length)} if length else {})
    values = feeds["x"][..., 0] + (1j * feeds["x"][..., 1] if parts == 2 else 0)
    if inverse and onesided:
        wanted = np.fft.irfft(values, length, axis=1)[..., None]
    else:
        found = (np.fft.ifft if inverse else np.fft.fft)(values, length, axis=1)
        found = found[:, : found.shape[1] // 2 + 1] if onesided else found
        wanted = np.stack([found.real, found.imag], axis=-1)
    same(tmp_path, node, feeds, weights, tolerance=8e-3, reference=[wanted])


@pytest.mark.parametrize(("size", "step"), [(16, 4), (15, 6), (12, 12), (37, 5)])
@pytest.mark.parametrize("onesided", [0, 1])
def test_short_fourier_transforms(tmp_path, size, step, onesided):
    rng = np.random.default_rng(37)
    feeds = {"x": half(rng, 2, 61, 1)}
    weights = {"s": np.array(step), "w": np.hanning(size).astype(np.float16).astype(np.float32)}
    node = helper.make_node("STFT", ["x", "s", "w"], ["y"], onesided=onesided)
    signal = feeds["x"][:, :, 0]
    frames = np.stack([signal[:, at : at + size] for at in range(0, 61 - size + 1, step)], axis=1) * weights["w"]
    found = (np.fft.rfft if onesided else np.fft.fft)(frames)
    wanted = np.stack([found.real, found.imag], axis=-1)
    graph = same(tmp_path, node, feeds, weights, tolerance=8e-3, reference=[wanted])
    assert af.preflight(graph, "m1").ok


@pytest.mark.parametrize("settings", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
def test_running_products(tmp_path, settings):
    rng = np.random.default_rng(21)
    feeds = {"x": half(rng, 2, 7, 3, scale=1.0)}
    line = feeds["x"][:, ::-1] if settings.get("reverse") else feeds["x"]
    shifted = np.concatenate([np.ones((2, 1, 3)), line[:, :-1]], axis=1) if settings.get("exclusive") else line
    wanted = np.cumprod(shifted, axis=1)
    wanted = wanted[:, ::-1] if settings.get("reverse") else wanted
    node = helper.make_node("CumProd", ["x", "a"], ["y"], **settings)
    same(tmp_path, node, feeds, {"a": np.array(1)}, opset=26, reference=[wanted])


# Recurrences.

RECURRENCES = [
    {},
    {"direction": "reverse"},
    {"direction": "bidirectional"},
    {"direction": "bidirectional", "lengths": [5, 3, 1]},
    {"direction": "reverse", "lengths": [2, 5, 4]},
    {"clip": 0.3},
    {"start": True, "direction": "bidirectional"},
    {"no_bias": True},
]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.parametrize("kind", list(GATES))
@pytest.mark.parametrize("settings", RECURRENCES)
def test_recurrences(tmp_path, kind, settings):
    rng = np.random.default_rng(22)
    told = dict(settings)
    lengths, start, bare = told.pop("lengths", None), told.pop("start", False), told.pop("no_bias", False)
    both = 2 if told.get("direction") == "bidirectional" else 1
    rows, hidden = GATES[kind] * 4, 4
    weights = {"w": half(rng, both, rows, 3), "r": half(rng, both, rows, hidden)}
    inputs = ["x", "w", "r", "" if bare else "b", "n" if lengths else ""]
    weights |= {} if bare else {"b": half(rng, both, 2 * rows)}
    feeds = {"x": half(rng, 5, 3, 3, scale=1.0)}
    if start:
        feeds |= {"h": half(rng, both, 3, hidden)} | ({"c": half(rng, both, 3, hidden)} if kind == "LSTM" else {})
        inputs += ["h", "c"] if kind == "LSTM" else ["h"]
    weights |= {"n": np.array(lengths, np.int32)} if lengths else {}
    outputs = ["y", "yh", *(["yc"] if kind == "LSTM" else [])]
    node = helper.make_node(kind, inputs, outputs, "cell", hidden_size=hidden, **told)
    same(tmp_path, node, feeds, weights, opset=14)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("settings", [{}, {"activations": ["HardSigmoid", "Relu"]}])
def test_a_gru_may_reset_before_or_after_its_product(tmp_path, late, settings):
    rng = np.random.default_rng(23)
    weights = {"w": half(rng, 1, 12, 3), "r": half(rng, 1, 12, 4), "b": half(rng, 1, 24)}
    node = helper.make_node("GRU", ["x", "w", "r", "b"], ["y"], hidden_size=4, linear_before_reset=late, **settings)
    same(tmp_path, node, {"x": half(rng, 4, 2, 3)}, weights, opset=14)


def test_an_lstm_that_looks_into_its_cell(tmp_path):
    rng = np.random.default_rng(24)
    weights = {"w": half(rng, 1, 16, 3), "r": half(rng, 1, 16, 4), "b": half(rng, 1, 32), "p": half(rng, 1, 12)}
    node = helper.make_node("LSTM", ["x", "w", "r", "b", "", "", "", "p"], ["y", "h", "c"], hidden_size=4)
    same(tmp_path, node, {"x": half(rng, 4, 2, 3)}, weights, opset=14)


def test_plain_recurrences_stay_one_op(tmp_path):
    rng = np.random.default_rng(25)
    weights = {"w": half(rng, 1, 16, 3), "r": half(rng, 1, 16, 4), "b": half(rng, 1, 32)}
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h"], hidden_size=4)
    graph = same(tmp_path, node, {"x": half(rng, 4, 2, 3)}, weights, opset=14)
    kinds = [each.op for each in graph.nodes]
    assert kinds.count("lstm") == 1
    assert "tanh" not in kinds


# Ops as older files have them.

OLD = [
    ("Softmax", 9, {"axis": 1}, [(2, 3, 4)], {}),
    ("LogSoftmax", 11, {"axis": 2}, [(2, 3, 4)], {}),
    ("Hardmax", 11, {"axis": 1}, [(2, 3, 4)], {}),
    ("Clip", 7, {"min": -0.25, "max": 0.5}, [(3, 4)], {}),
    ("Clip", 10, {"max": 0.5}, [(3, 4)], {}),
    ("Pad", 9, {"pads": [1, 0, 2, 1], "value": 0.5}, [(3, 4)], {}),
    ("Pad", 7, {"pads": [1, 0, 2, 1], "mode": "reflect"}, [(3, 4)], {}),
    ("Slice", 9, {"starts": [1, -3], "ends": [3, 100], "axes": [0, 1]}, [(4, 5)], {}),
    ("Slice", 7, {"starts": [1], "ends": [-1]}, [(4, 5)], {}),
    ("TopK", 9, {"k": 2, "axis": 1}, [(3, 5)], {}),
    ("Squeeze", 11, {"axes": [0, -1]}, [(1, 3, 1)], {}),
    ("Unsqueeze", 11, {"axes": [-1, 0]}, [(3, 4)], {}),
    ("Split", 11, {"split": [1, 3], "axis": 1}, [(2, 4)], {}),
    ("ReduceSum", 11, {"axes": [-1], "keepdims": 0}, [(2, 4)], {}),
    ("ReduceMean", 11, {}, [(2, 4)], {}),
    ("Upsample", 7, {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}, [(1, 2, 3, 4)], {}),
    ("Upsample", 9, {"mode": "linear"}, [(1, 2, 3, 4)], {"s": np.array([1, 1, 2, 2], np.float32)}),
    ("Resize", 10, {"mode": "nearest"}, [(1, 2, 4, 6)], {"s": np.array([1, 1, 0.5, 1.5], np.float32)}),
    ("Resize", 10, {"mode": "linear"}, [(1, 2, 4, 6)], {"s": np.array([1, 1, 2, 1.5], np.float32)}),
    ("Dropout", 7, {"ratio": 0.3}, [(3, 4)], {}),
    ("Dropout", 10, {"ratio": 0.3}, [(3, 4)], {}),
    ("Scatter", 9, {"axis": 1}, [(2, 4)], {"i": np.array([[1], [3]]), "u": np.ones((2, 1), np.float32)}),
    ("BatchNormalization", 7, {}, [(2, 3, 4, 4)], {name: np.full(3, 0.5, np.float32) for name in "gbmv"}),
    ("BatchNormalization", 9, {"epsilon": 0.125}, [(2, 3, 4)], {name: np.full(3, 0.5, np.float32) for name in "gbmv"}),
    ("DepthToSpace", 9, {"blocksize": 2}, [(1, 8, 2, 3)], {}),
    ("PRelu", 7, {}, [(2, 3, 4, 4)], {"s": np.array([0.25, 0.5, -1.0], np.float32).reshape(3, 1, 1)}),
    ("PRelu", 9, {}, [(2, 3, 4)], {"s": np.array([0.25, 0.5, -1.0, 2.0], np.float32)}),
    ("Gemm", 7, {"alpha": 0.5, "beta": 2.0, "transA": 1}, [(4, 3), (4, 5)], {"c": np.ones((3, 1), np.float32)}),
    ("Gemm", 9, {"transB": 1}, [(3, 4)], {"w": np.ones((5, 4), np.float32), "c": np.ones(5, np.float32)}),
    ("MaxPool", 8, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}, [(1, 2, 7, 8)], {}),
    ("AveragePool", 7, {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]}, [(1, 2, 7, 8)], {}),
    ("AveragePool", 7, {"kernel_shape": [3, 3], "pads": [0, 1, 1, 1], "count_include_pad": 1}, [(1, 2, 7, 8)], {}),
    ("GlobalLpPool", 7, {"p": 3}, [(1, 2, 4, 5)], {}),
    ("LRN", 7, {"size": 3, "alpha": 0.5, "beta": 0.75, "bias": 2.0}, [(1, 5, 3, 3)], {}),
    ("MeanVarianceNormalization", 9, {"axes": [0, 2]}, [(2, 3, 4)], {}),
    ("InstanceNormalization", 7, {}, [(2, 3, 5)], {name: np.full(3, 0.5, np.float32) for name in "sb"}),
    ("Selu", 7, {"alpha": 1.5, "gamma": 2.0}, [(3, 4)], {}),
    ("Shrink", 9, {"bias": 0.25, "lambd": 0.25}, [(3, 4)], {}),
    ("ThresholdedRelu", 10, {"alpha": 0.25}, [(3, 4)], {}),
    ("Flatten", 9, {"axis": 2}, [(2, 3, 4)], {}),
    ("ArgMax", 7, {"axis": 1}, [(3, 5)], {}),
    ("Sum", 8, {}, [(3, 4), (1, 4), (3, 1)], {}),
    ("Mean", 8, {}, [(3, 4), (1, 4), (3, 1)], {}),
    ("Expand", 8, {}, [(3, 1)], {"s": np.array([2, 1, 4])}),
    ("EyeLike", 9, {"k": 1}, [(3, 4)], {}),
    ("Where", 9, {}, [], {}),
]


@pytest.mark.parametrize(("kind", "opset", "settings", "shapes", "weights"), OLD)
def test_ops_as_older_files_have_them(tmp_path, kind, opset, settings, shapes, weights):
    rng = np.random.default_rng(36)
    feeds = {f"x{i}": half(rng, *shape, scale=1.0) for i, shape in enumerate(shapes)}
    if kind == "Where":
        feeds = {"c": rng.random((2, 3)) > 0.5, "a": half(rng, 2, 3), "b": half(rng, 1, 3)}
    results = 2 if kind in ("TopK", "Split") else 1
    node = helper.make_node(kind, [*feeds, *weights], [f"y{i}" for i in range(results)], "old", **settings)
    reference = [np.eye(3, 4, 1)] if kind == "EyeLike" else None
    same(tmp_path, node, feeds, weights, opset=opset, reference=reference)


# What ONNX Runtime's own domain adds.


@pytest.fixture
def microsoft():
    pytest.importorskip("onnxruntime")


def contributed(kind, inputs, outputs=("y",), **settings):
    return helper.make_node(kind, inputs, list(outputs), kind.lower(), domain=MICROSOFT, **settings)


@pytest.mark.usefixtures("microsoft")
@pytest.mark.parametrize("kind", ["Gelu", "FastGelu", "BiasGelu", "QuickGelu"])
def test_contributed_activations(tmp_path, kind):
    rng = np.random.default_rng(26)
    with_bias = kind in ("FastGelu", "BiasGelu")
    node = contributed(kind, ["x", "b"] if with_bias else ["x"])
    same(tmp_path, node, {"x": half(rng, 2, 3, 8, scale=2.0)}, {"b": half(rng, 8)} if with_bias else {})


@pytest.mark.usefixtures("microsoft")
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("stored", [True, False])
def test_a_product_with_a_factor(tmp_path, turned, stored):
    rng = np.random.default_rng(27)
    a = half(rng, 2, *((5, 4) if turned[0] else (4, 5)))
    b = half(rng, *((6, 5) if turned[1] else (5, 6)))
    node = contributed("FusedMatMul", ["a", "b"], transA=turned[0], transB=turned[1], alpha=0.25)
    same(tmp_path, node, {"a": a} | ({} if stored else {"b": b}), {"b": b} if stored else {})


@pytest.mark.usefixtures("microsoft")
@pytest.mark.parametrize("kind", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("with_sum", [False, True])
def test_norms_of_a_sum(tmp_path, kind, with_sum):
    rng = np.random.default_rng(28)
    plain = kind == "SkipLayerNormalization"
    weights = {"g": half(rng, 8), "bias": half(rng, 8)} | ({"b": half(rng, 8)} if plain else {})
    inputs = ["x", "s", "g", *(["b"] if plain else []), "bias"]
    node = contributed(kind, inputs, ["y", "", "", "sum"] if with_sum else ["y"], epsilon=1e-5)
    same(tmp_path, node, {"x": half(rng, 2, 3, 8), "s": half(rng, 2, 3, 8)}, weights)


@pytest.mark.usefixtures("microsoft")
@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh"])
def test_convolutions_with_an_activation(tmp_path, activation):
    rng = np.random.default_rng(29)
    told = {"LeakyRelu": [0.125], "Clip": [-0.25, 0.5]}.get(activation)
    settings = {"activation": activation, "pads": [1, 1, 1, 1]} | ({"activation_params": told} if told else {})
    node = contributed("FusedConv", ["x", "w", "b"], **settings)
    weights = {"w": half(rng, 6, 4, 3, 3), "b": half(rng, 6)}
    same(tmp_path, node, {"x": half(rng, 1, 4, 6, 6)}, weights)


@pytest.mark.usefixtures("microsoft")
@pytest.mark.parametrize("settings", [{}, {"interleaved": 1}])
@pytest.mark.parametrize("flat", [True, False])
def test_contributed_rotary_positions(tmp_path, settings, flat):
    rng = np.random.default_rng(30)
    node = contributed("RotaryEmbedding", ["x", "p", "c", "s"], **settings)
    angles = rng.uniform(0, 3, (10, 4))
    weights = {"p": np.array([[2, 3, 4], [5, 0, 1]]), "c": np.cos(angles), "s": np.sin(angles)}
    weights = {name: each.astype(np.float32) if name != "p" else each for name, each in weights.items()}
    shape = (2, 3, 16) if flat else (2, 2, 3, 8)
    same(tmp_path, node, {"x": half(rng, *shape)}, weights)


@pytest.mark.usefixtures("microsoft")
@pytest.mark.parametrize("settings", [{}, {"unidirectional": 1}, {"mask": [3, 2]}, {"scale": 0.25}])
def test_contributed_attention(tmp_path, settings):
    rng = np.random.default_rng(31)
    told = dict(settings)
    mask = told.pop("mask", None)
    weights = {"w": half(rng, 8, 24), "b": half(rng, 24)} | ({"m": np.array(mask, np.int32)} if mask else {})
    node = contributed("Attention", ["x", "w", "b", *(["m"] if mask else [])], num_heads=2, **told)
    same(tmp_path, node, {"x": half(rng, 2, 4, 8)}, weights)


@pytest.mark.usefixtures("microsoft")
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("what", ["plain", "bias", "added", "past"])
def test_attention_of_projected_values(tmp_path, samples, what):
    rng = np.random.default_rng(32)
    feeds = {name: half(rng, samples, length, 8) for name, length in (("q", 3), ("k", 5), ("v", 5))}
    weights: dict[str, np.ndarray] = {}
    inputs, outputs = ["q", "k", "v"], ["y"]
    if what == "bias":
        weights["b"], inputs = half(rng, 24), [*inputs, "b"]
    if what == "added":
        feeds["m"], inputs = half(rng, 1, 1, 3, 5), [*inputs, "", "", "m"]
    if what == "past":
        feeds |= {name: half(rng, samples, 2, 4, 4) for name in ("pk", "pv")}
        inputs, outputs = [*inputs, "", "", "", "pk", "pv"], ["y", "nk", "nv"]
    graph = same(tmp_path, contributed("MultiHeadAttention", inputs, outputs, num_heads=2), feeds, weights)
    assert [each.op for each in graph.nodes].count("softmax") == 1


@pytest.mark.usefixtures("microsoft")
@pytest.mark.parametrize(("new", "past"), [(4, 0), (1, 3), (3, 2)])
@pytest.mark.parametrize("settings", [{}, {"do_rotary": 1}, {"local_window_size": 2}, {"softcap": 2.0}])
def test_grouped_attention_with_a_past_of_known_length(tmp_path, new, past, settings):
    rng = np.random.default_rng(33)
    heads, own, size = 4, 2, 16
    feeds = {"q": half(rng, 1, new, heads * size), "k": half(rng, 1, new, own * size)}
    feeds |= {"v": half(rng, 1, new, own * size)}
    feeds |= {name: half(rng, 1, own, past, size) for name in ("pk", "pv")} if past else {}
    angles = rng.uniform(0, 3, (16, size // 2))
    weights = {"n": np.array([new + past - 1], np.int32), "t": np.array([new + past], np.int32)}
    inputs = ["q", "k", "v", *(("pk", "pv") if past else ("", "")), "n", "t"]
    if settings.get("do_rotary"):
        weights |= {"c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}
        inputs += ["c", "s"]
    outputs = ["y", "nk", "nv"]
    node = contributed("GroupQueryAttention", inputs, outputs, num_heads=heads, kv_num_heads=own, **settings)
    same(tmp_path, node, feeds, weights)


# The standard's own attention.


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"is_causal": 1}, {"scale": 0.125}, {"softcap": 1.5}])
def test_attention_as_products(samples, settings):
    rng = np.random.default_rng(34)
    arrays = [half(rng, samples, 4, 5, 8), half(rng, samples, 2, 5, 8), half(rng, samples, 2, 5, 8)]
    given = [af.input(each.shape) for each in arrays]
    node = OnnxNode("Attention", "attend", 23, dict(settings), inputs=given)
    found = apply(PREFERRED["Attention"], node)
    assert isinstance(found, af.Tensor)
    proto = helper.make_node("Attention", ["q", "k", "v"], ["y"], **settings)
    feeds = dict(zip("qkv", arrays, strict=True))
    (wanted,) = by_reference(proto, feeds, opset=23)
    np.testing.assert_allclose(af.evaluate(found, arrays), np.asarray(wanted), rtol=1e-4, atol=1e-4)
    assert found.op == "matmul"


def test_a_mask_of_truth_values_is_added():
    rng = np.random.default_rng(35)
    arrays = [half(rng, 1, 2, 4, 8), half(rng, 1, 2, 5, 8), half(rng, 1, 2, 5, 8)]
    given = [af.input(each.shape) for each in arrays]
    mask = rng.random((4, 5)) > 0.4
    mask[:, 0] = True
    found = apply(PREFERRED["Attention"], OnnxNode("Attention", "attend", 23, inputs=[*given, mask]))
    assert isinstance(found, af.Tensor)
    proto = helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])
    feeds = dict(zip("qkv", arrays, strict=True)) | {"m": mask}
    (wanted,) = by_reference(proto, feeds, opset=23)
    np.testing.assert_allclose(af.evaluate(found, arrays), np.asarray(wanted), rtol=1e-4, atol=1e-4)
    assert found.op == "matmul"
    mask[2] = False  # such a row gives zeros, which the layer does not
    with pytest.raises(LoadError, match="a row of the mask excludes every key"):
        apply(PREFERRED["Attention"], OnnxNode("Attention", "attend", 23, inputs=[*given, mask]))


# Refusals.


@pytest.mark.parametrize(
    ("kind", "inputs", "weights", "settings", "reason"),
    [
        ("NonZero", ["x"], {}, {}, "depends on the data"),
        ("Unique", ["x"], {}, {}, "depends on the data"),
        ("SplitToSequence", ["x"], {}, {}, "sequence"),
        (
            "Compress",
            ["x", "c"],
            {"c": np.zeros(4, bool)},
            {"axis": 0},
            "condition keeps no element; empty tensors are not supported",
        ),
    ],
)
def test_what_has_no_form_says_why(tmp_path, kind, inputs, weights, settings, reason):
    node = helper.make_node(kind, inputs, ["y"], "odd", **settings)
    model = model_of(node, {"x": np.zeros((4, 6), np.float32)}, weights)
    file = tmp_path / "model.onnx"
    onnx.save(model, str(file))
    with pytest.raises(LoadError, match=rf"model.onnx: odd \({kind}\): .*{reason}"):
        af.load(file)


def test_a_huge_resize_is_refused_before_its_weights_are_made(tmp_path):
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], "grow", mode="cubic")
    feeds = {"x": np.zeros((1, 1, 2, 20000), np.float32)}
    graph = loaded(tmp_path, model_of(node, feeds, {"s": np.array([1, 1, 2, 30000])}), on_engine=False)
    (host,) = [each for each in graph.nodes if each.op == "host"]
    assert "600,000,000 weights" in host.attrs["reason"]


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_the_host_samples_at_computed_places(tmp_path, mode, padding):
    """The evaluator's own GridSample takes minutes for a detector, and does not know these names of the modes."""
    rng = np.random.default_rng(36)
    feeds = {"x": half(rng, 1, 2, 5, 6), "g": half(rng, 1, 3, 4, 2)}
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=1)
    model = model_of(node, feeds, {}, opset=16)
    on_engine = mode != "bicubic" and padding != "reflection"  # those are resample, of the texture engine
    graph = loaded(tmp_path, model, on_engine=on_engine)
    assert ("host" in {each.op for each in graph.nodes}) != on_engine
    (found,) = af.evaluate(graph, list(feeds.values()))
    np.testing.assert_allclose(found, by_runtime(model, feeds)[0], rtol=2e-5, atol=2e-5)
    same(tmp_path, node, {"x": feeds["x"]}, {"g": feeds["g"]}, opset=16)  # known places: a product on the engine


@pytest.mark.parametrize(("epsilon", "kept"), [(1e-12, 2.0**-24), (1e-5, np.float32(1e-5))])
def test_an_epsilon_below_fp16_is_that_of_the_converted_package(tmp_path, epsilon, kept):
    """coremltools stores fp16's smallest step where an epsilon would become zero; BERT has 1e-12."""
    weights = {"g": np.ones(8, np.float32), "b": np.zeros(8, np.float32)}
    node = helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], "norm", axis=-1, epsilon=epsilon)
    graph = loaded(tmp_path, model_of(node, {"x": np.ones((2, 8), np.float32)}, weights, opset=17))
    (norm,) = (node for node in graph.nodes if node.op == "layer_norm")
    assert norm.attrs["eps"] == pytest.approx(float(kept), rel=1e-7)
