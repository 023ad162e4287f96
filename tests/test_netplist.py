"""Netplists: units authored by hand become the graph they mean, and what is wrong names file and unit."""

from __future__ import annotations

import plistlib

import numpy as np
import pytest
from netplist_kit import RNG, bits, half, readable_tags, refusal, unit, written

import aneforge as af
from aneforge.engine.native import layer_types
from aneforge.errors import LoadError

X = RNG.standard_normal((2, 4, 6, 8))


@pytest.mark.parametrize("binary", [True, False])
def test_a_convolution_and_its_activation(tmp_path, binary):
    kernel = half(8, 4, 3, 3)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 64 + kernel.tobytes())
    sizes = {"Type": "Conv", "KernelWidth": 3, "KernelHeight": 3, "KernelIndex": 0, "KernelOffset": 64}
    pads = {"PadLeft": 1, "PadRight": 1, "PadTop": 1, "PadBot": 1, "Step": [1, 1]}
    units = {
        "conv": unit("Conv", "x", {**sizes, **pads}, OutputChannels=8, NumGroups=1),
        "act": unit("Neuron", ["conv"], {"Type": "LeakyReLU", "ReluSlope": bits(0.125)}),
    }
    file = written(tmp_path, units, {"x": (1, 4, 6, 6)}, {"y": "act"}, ["weights.bin"], binary=binary)
    graph = af.load(file)
    by_hand = af.conv(af.input((1, 4, 6, 6), name="x"), kernel, pad=1).leaky_relu(0.125)
    data = half(1, 4, 6, 6)
    np.testing.assert_array_equal(af.evaluate(graph, [data])[0], af.evaluate(by_hand, [data]))
    assert {"conv", "y"} <= set(graph.names().values())
    np.testing.assert_array_equal(af.compile(graph, target="m1")(data), af.compile(by_hand, target="m1")(data))


def test_fused_attention_is_the_native_layer(tmp_path):
    """Channels hold the sequence, height the heads, the scale is a constant."""
    (tmp_path / "w.bin").write_bytes(np.array([0.25], np.float16).tobytes())
    constants = {"scale": {"ConstantName": "scale", "ConstantType": "Float16", "ConstantIndex": 0}}
    shape = (1, 16, 2, 8)
    units = {"attn": unit("SDPA", ["q", "k", "v", "scale"], {"SubtractMax": True})}
    file = written(tmp_path, units, dict.fromkeys("qkv", shape), {"y": "attn"}, ["w.bin"], constants)
    graph = af.load(file)
    assert "sdpa" in [each.op for each in graph]
    q, k, v = (half(*shape).astype(float) for _ in range(3))
    heads = [each.transpose(0, 2, 1, 3) for each in (q, k, v)]
    scores = heads[0] @ heads[1].transpose(0, 1, 3, 2) * 0.25
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = (weights / weights.sum(-1, keepdims=True)) @ heads[2]
    np.testing.assert_allclose(af.evaluate(graph, [q, k, v])[0], want.transpose(0, 2, 1, 3), rtol=1e-9)
    units["attn"]["Params"] = {}
    file = written(tmp_path, units, dict.fromkeys("qkv", shape), {"y": "attn"}, ["w.bin"], constants)
    with pytest.warns(af.PrecisionWarning, match=r"SubtractMax is false"):
        assert not next(node for node in af.load(file) if node.op == "sdpa").attrs["subtract_max"]


WAYS = {
    "pool": (
        unit("Pool", "x", {"Type": "Avg", "KernelWidth": 2, "KernelHeight": 2, "Step": [2, 2, 1]}),
        lambda x: x.reshape(2, 4, 3, 2, 4, 2).mean((3, 5)),
    ),
    "sum": (
        unit("Reduction", "x", {"Type": "Sum", "Dimension": ["Width", "Height"]}),
        lambda x: x.sum((2, 3), keepdims=True),
    ),
    "softmax": (unit("Softmax", "x", {"Dimension": "Channel"}), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "abs": (unit("ElementWise", "x", {"Type": "Abs"}), np.abs),
    "pair": (unit("ElementWise", ["x", "x"], {"Type": "GreaterThan"}), lambda x: x * 0),
    "goc": (unit("GOC", "x", {"ScaleScalar": bits(2), "BiasScalar": bits(-1)}), lambda x: 2 * x - 1),
    "reshape": (unit("Reshape", "x", {"ReshapedChannel": 8, "ReshapedHeight": 3}), lambda x: x.reshape(2, 8, 3, 8)),
    "view": (unit("InputView", "x", {"Dimension": "Width", "Offset": 2, "Size": 3}), lambda x: x[..., 2:5]),
    "strided": (
        unit("InputView", "x", {"Dimension": "Width", "Offset": 1, "Size": 3, "Step": 2}),
        lambda x: x[..., 1:7:2],
    ),
    "tile": (unit("Tile", "x", {"Width": 2, "Channel": 3}), lambda x: np.tile(x, (1, 3, 1, 2))),
    "concat": (unit("Concat", ["x", "x"], {"Dimension": "Height"}), lambda x: np.concatenate([x, x], 2)),
    "turn": (
        unit(
            "Transpose",
            "x",
            {
                "TransposeDimensions": [
                    {"TransposeSourceDimension": "Channel", "TransposeDestinationDimension": "Width"},
                    {"TransposeSourceDimension": "Width", "TransposeDestinationDimension": "Channel"},
                ]
            },
        ),
        lambda x: x.transpose(0, 3, 2, 1),
    ),
    "log2": (unit("Neuron", "x", {"Type": "Exp2"}), np.exp2),
    "clamp": (
        unit("Neuron", "x", {"Type": "ClampedReLU", "ReluMin": bits(-0.5), "ReluMax": bits(0.75)}),
        lambda x: np.clip(x, -0.5, 0.75),
    ),
    "scaled": (unit("ScaledElementWise", ["x", "x"], {"Type": "Add", "Scale": bits(0.5)}), lambda x: x),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_units_mean(tmp_path, name):
    told, want = WAYS[name]
    graph = af.load(written(tmp_path, {"u": told}, {"x": X.shape}, {"y": "u"}))
    np.testing.assert_allclose(af.evaluate(graph, [X])[0], want(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["TopK", "Sort"])
def test_vectors_are_ranked_by_their_key_lane(tmp_path, kind):
    ways = {"SortDimension": "Width", "VectorDimension": "Channel", "SortIndices": [0]}
    params = {"Type": "Max", "K": 5, **ways} if kind == "TopK" else {"Direction": "Descending", **ways}
    data = RNG.permutation(32).reshape(1, 2, 1, 16).astype(float)
    graph = af.load(written(tmp_path, {"u": unit(kind, "x", params)}, {"x": data.shape}, {"y": "u"}))
    want = data[..., np.argsort(-data[0, 0, 0])][..., : 5 if kind == "TopK" else 16]
    np.testing.assert_array_equal(af.evaluate(graph, [data])[0], want)


def test_every_published_layer_is_read_or_refused_with_a_reason():
    readable = readable_tags()
    assert len(readable) >= 30
    for layer in layer_types():
        assert layer.tag in readable or len(str(refusal(layer.tag))) > 20
        assert layer.is_published or layer.tag not in readable


BAD = {
    "unit": ({"u": unit("Conv", "x", {"Type": "Conv"})}, r"u \(Conv\): parameter KernelWidth is missing"),
    "bottom": ({"u": unit("Neuron", "z", {"Type": "ReLU"})}, r"u \(Neuron\): bottom 'z' must be an input"),
    "param": ({"u": unit("Neuron", "x")}, r"u \(Neuron\): parameter Type is missing; add it \(InvalidParamSyntax\)"),
    "enum": ({"u": unit("Neuron", "x", {"Type": "Wave"})}, r"Type is 'Wave'; choose one: ReLU"),
    "type": ({"u": unit("Telepathy", "x")}, r"u \(Telepathy\): .*not a type of native layer"),
    "published": ({"u": unit("Resize", "x")}, r"the names of its parameters in a netplist are not published"),
    "steps": ({"u": unit("Pool", "x", {"Type": "Max", "KernelWidth": 2, "KernelHeight": 2, "Step": [1, 2]})},
              r"Step .1, 2. has unequal values"),
    "float": ({"u": unit("GOC", "x", {"ScaleScalar": 0.5})}, r"ScaleScalar is 0.5; it must be the bit pattern"),
    "depth": ({"u": unit("Pool", "x", {"Type": "Max", "KernelWidth": 2, "KernelHeight": 2, "KernelDepth": 2})},
              r"C08"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_wrong_units_name_file_and_unit(tmp_path, name):
    units, message = BAD[name]
    with pytest.raises(LoadError, match=rf"net.plist: .*{message}"):
        af.load(written(tmp_path, units, {"x": (1, 4, 4, 4)}, {"y": "u"}))


def test_weights_stay_in_the_folder(tmp_path):
    sizes = {"Type": "Conv", "KernelWidth": 1, "KernelHeight": 1}
    units = {"c": unit("Conv", "x", sizes, OutputChannels=8)}
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 64)
    for name, message in (("../secret.bin", "outside"), ("absent.bin", "does not exist")):
        with pytest.raises(LoadError, match=message):
            af.load(written(folder, units, {"x": (1, 4, 4, 4)}, {"y": "c"}, [name]))
    (folder / "short.bin").write_bytes(b"\0" * 10)
    with pytest.raises(
        LoadError, match=r"weight file 'short.bin' has 10 bytes; the 64 bytes at offset 0 are not inside it"
    ):
        af.load(written(folder, units, {"x": (1, 4, 4, 4)}, {"y": "c"}, ["short.bin"]))


def test_files_that_are_no_netplists(tmp_path):
    file = tmp_path / "net.plist"
    for content, message in ((b"junk", "not a property list"), (plistlib.dumps({"a": 1}), "not a netplist")):
        file.write_bytes(content)
        with pytest.raises(LoadError, match=message):
            af.load(file)
    units = {"u": unit("Neuron", "x", {"Type": "ReLU"})}
    with pytest.raises(LoadError, match=r"version 2\.0"):
        af.load(written(tmp_path, units, {"x": (1, 4, 4, 4)}, {"y": "u"}, Version="2.0"))
    with pytest.raises(LoadError, match="output 'y' is not the result of any unit"):
        af.load(written(tmp_path, units, {"x": (1, 4, 4, 4)}, {"y": "v"}))
    with pytest.raises(LoadError, match="netplist does not take dims; it is for ONNX"):
        af.load(written(tmp_path, units, {"x": (1, 4, 4, 4)}, {"y": "u"}), dims={"batch": 1})


def test_a_netplist_goes_by_the_direct_route(tmp_path):
    """Authored layers are gated by their validators, not by the floors of conversion: no unit computes a sine."""
    units = {"u": unit("Neuron", "x", {"Type": "Sin"})}
    file = written(tmp_path, units, {"x": (1, 4, 4, 4)}, {"y": "u"})
    graph = af.load(file)
    assert graph.route == "direct"
    with pytest.raises(af.CompileError, match="This platform doesn't support Neuron Sin"):
        af.compile(graph, target="m1")
    with pytest.raises(af.CompileError, match="the function Sin cannot be authored on any chip") as caught:
        af.compile(graph, target="m3")
    assert caught.value.route == "direct"
    assert af.compile(graph, target="m3", route="conversion").route == "conversion"
    assert af.compile(graph, target="m1", route="conversion").route == "conversion"  # which rewrites it
    graph.save(tmp_path / "kept.aneforge")
    assert af.load(tmp_path / "kept.aneforge").route == "direct"
    assert not af.check(file, target="m1").ok
