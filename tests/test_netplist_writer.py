"""Netplists out: every readable unit and small networks, from a file to a graph and back, to the bit."""

from __future__ import annotations

import itertools
import json
import plistlib
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netplist_kit import bits, constant, half, readable_tags, unit, written

import aneforge as af
from aneforge.cli import export
from aneforge.engine.native import layer_type
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.formats.exports import ExportError
from aneforge.formats.netplist import read_procedure

CHIPS = ("h13", "h17s")
PLANE, ROW, POINTS = (1, 4, 6, 8), (1, 2, 1, 16), (1, 3, 1, 1)
WINDOW = {"KernelWidth": 2, "KernelHeight": 3}
FACTORS = {"FactorX": 2, "FactorY": 2, "FactorZ": 1}
LANES = {"SortDimension": "Width", "VectorDimension": "Channel", "SortIndices": [0]}
TURN = [("Channel", "Width"), ("Height", "Channel"), ("Width", "Height")]

Example = tuple[dict[str, Any], list[Any]]
EXAMPLES: dict[str, list[Example]] = {
    "ArgMinMax": [
        ({"Mode": "SpatialArgMax", **WINDOW}, [PLANE]),
        ({"Mode": "ChannelArgMin", "KernelWidth": 1, "KernelHeight": 1}, [PLANE]),
    ],
    "BatchToSpace": [(FACTORS, [(4, 4, 6, 8)])],
    "Broadcast": [({"BroadcastInfo": [{"Dimension": "Width", "Size": 3}]}, [(1, 4, 6, 1)])],
    "ChannelToSpace": [(FACTORS, [PLANE])],
    "Concat": [({"Dimension": axis}, [PLANE, PLANE]) for axis in ("Channel", "Height", "Width")],
    "Conv": [({"Type": "Conv", **WINDOW, "PadTop": 1, "PadLeft": 1, "Step": [2, 2]}, [PLANE])],
    "CostVolume": [({"DisparityRange": 3, "DisparityDirection": 0}, [(1, 1, 1, 8), (1, 1, 1, 11)])],
    "CrossCorrelation": [({"TemplateWidth": 3, "TemplateHeight": 2}, [(1, 1, 6, 6), (1, 1, 2, 3)])],
    "CrossProduct": [({}, [POINTS, POINTS])],
    "DynamicGOC": [
        ({"BiasOnly": True}, [PLANE, (1, 4, 1, 1)]),
        ({"BiasOnly": False}, [PLANE, (1, 4, 1, 1), (1, 1, 1, 1)]),
    ],
    "DynamicSlice": [
        (
            {"DynamicSliceAxisOrder": ["Width"], "DynamicSliceInfo": [{"Coordinate": "Width", "SliceSize": 2}]},
            [(1, 1, 1, 4), (1, 1, 1, 1)],
        )
    ],
    "ElementWise": [
        ({"Type": "Abs"}, [PLANE]),
        *(
            ({"Type": kind}, [PLANE, PLANE])
            for kind in layer_type("ElementWise").params["Type"].values
            if kind != "Abs"
        ),
    ],
    "Flatten": [({}, [PLANE])],
    "FurthestPointSampling": [({"CentroidCount": 4, "DistanceMetric": "L2"}, [(1, 3, 1, 16)])],
    "Gather": [({"GatherNDAxes": ["Width"]}, [PLANE, "indices"]), ({"GatherNDAxes": ["Channel"]}, [PLANE, "indices"])],
    "GlobalArgMinMax": [({"Type": "Max", "Dimension": "Width"}, [PLANE])],
    "GOC": [({"ScaleScalar": bits(0.3), "BiasScalar": bits(-1.5)}, [PLANE]), ({"BiasScalar": bits(2)}, [PLANE])],
    "InputView": [
        ({"Dimension": "Width", "Offset": 2, "Size": 3}, [PLANE]),
        ({"Dimension": "Channel", "Offset": 1, "Size": 2, "Step": 2}, [PLANE]),
    ],
    "LocalResponseNormalization": [
        ({"Type": "Channel", "KernelChannel": 4, "Alpha": bits(0.25), "Beta": 0.5}, [PLANE])
    ],
    "MatrixMultiplication": [({}, [(1, 5, 1, 6), (1, 6, 1, 7)])],
    "MinMaxNormalization": [({"Dimension": "Width", "Epsilon": bits(0.01)}, [PLANE])],
    "Neuron": [
        (
            {
                "Type": kind,
                **{"LeakyReLU": {"ReluSlope": bits(0.2)}, "ClampedReLU": {"ReluMax": bits(0.7)}}.get(kind, {}),
            },
            [PLANE],
        )
        for kind in layer_type("Neuron").params["Type"].values
    ],
    "PixelShuffle": [(FACTORS, [PLANE])],
    "PixelUnshuffle": [(FACTORS, [PLANE])],
    "Pooling": [
        ({"Type": "Max", **WINDOW, "Step": [2, 2, 1], "PadBot": 1}, [PLANE]),
        ({"Type": "Avg", **WINDOW, "PadLeft": 1, "AverageCountExcludePadding": True}, [PLANE]),
    ],
    "Reduction": [
        ({"Type": kind, "Dimension": ["Height", "Width"]}, [PLANE]) for kind in ("Sum", "Avg", "Max", "Min")
    ],
    "Reshape": [({"ReshapedChannel": 8, "ReshapedHeight": 3}, [PLANE])],
    "SDPA": [
        ({"SubtractMax": True}, [(1, 16, 2, 8)] * 3 + ["scale"]),
        ({"SubtractMax": True}, [(1, 16, 2, 8)] * 3 + ["scale", (1, 16, 1, 16)]),
    ],
    "ScaledElementWise": [({"Type": kind, "Scale": bits(0.5)}, [PLANE, PLANE]) for kind in ("Add", "Max")],
    "Softmax": [({"Dimension": axis}, [PLANE]) for axis in ("Channel", "Width")],
    "Sort": [({"Direction": "Descending", **LANES}, [ROW])],
    "SpaceToBatch": [(FACTORS, [PLANE])],
    "SpaceToChannel": [(FACTORS, [PLANE])],
    "Tile": [({"Width": 2, "Channel": 3}, [PLANE])],
    "TopK": [({"Type": "Max", "K": 5, **LANES}, [ROW])],
    "Transpose": [
        (
            {
                "TransposeDimensions": [
                    {"TransposeSourceDimension": source, "TransposeDestinationDimension": place}
                    for source, place in TURN
                ]
            },
            [PLANE],
        )
    ],
}
"""Params and bottoms: shapes of inputs, or the name of a constant."""

"""A layer whose meaning another states as well, and which the graph does not tell from it."""


def drawn(tag: str, folder) -> Example:
    """An example for a layer without one in the table: the first that the reader takes."""
    known = layer_type(tag)
    shapes = [PLANE, (1, 3, 1, 8), POINTS, ROW, (1, 1, 1, 4), (1, 1, 1, 1), (1, 4, 4, 4), (1, 1, 1, 9)]
    sizes = {"int": [2, 1, 4], "half": [bits(0.5)], "float": [0.5], "bool": [False], "array": [["Width"], [0]]}
    params = [param for param in known.params.values() if param.required]
    choices = [list(param.values[:2]) if param.kind == "enum" else sizes[param.kind] for param in params]
    arrays = [
        [list(param.values[:1])] if param.kind == "array" and param.values else choice
        for param, choice in zip(params, choices, strict=True)
    ]
    for count in range(known.fewest, (known.most or 2) + 1):
        for bottoms in itertools.product(shapes, repeat=count):
            for values in itertools.product(*arrays):
                example = dict(zip((param.key for param in params), values, strict=True)), list(bottoms)
                try:
                    af.load(authored(folder, tag, example))
                except AneforgeError:
                    continue
                return example
    pytest.fail(f"{tag}: no example was found; add one to EXAMPLES")


def authored(folder, tag: str, example: Example):
    params, bottoms = example
    scale, kernel = np.float16(0.25).tobytes(), half(8 * 4 * 3 * 2).tobytes()
    indices = np.array([3, 0, 2], "<u2").tobytes()
    (folder / "w.bin").write_bytes(scale.ljust(32, b"\0") + indices.ljust(32, b"\0") + kernel)
    names = [bottom if isinstance(bottom, str) else f"x{number}" for number, bottom in enumerate(bottoms)]
    inputs = {name: shape for name, shape in zip(names, bottoms, strict=True) if name != shape}
    stored = {
        "scale": constant("scale"),
        "indices": constant("indices", (1, 1, 3, 1), 32, ConstantType="UInt16"),
    }
    constants = {name: stored[name] for name in names if name in stored}
    keys = {"OutputChannels": 8} if tag == "Conv" else {}
    place = {"KernelIndex": 0, "KernelOffset": 64} if tag == "Conv" else {}
    told = {"u": unit(tag, names, {**params, **place}, **keys)}
    return written(folder, told, inputs, {"u": "u"}, ["w.bin"], constants)


def network(file):
    return plistlib.loads(file.read_bytes())["net"]


def plain(key, value):
    """A parameter as it is compared: lists of axes in any order, steps with a depth of one."""
    if key == "TransposeDimensions":
        return sorted(tuple(sorted(entry.items())) for entry in value)
    if key == "Step" and isinstance(value, list):
        return [*value, 1][:3]
    return sorted(value) if key == "Dimension" and isinstance(value, list) else value


def run(graph, data, chip):
    """The numbers of the simulator, or why the chip refuses."""
    try:
        model = af.compile(graph, target=chip, route="direct", opt=0)
    except AneforgeError as error:
        return str(error)
    result = model(*(array.reshape(port.shape) for array, port in zip(data, graph.inputs, strict=True)))
    return [
        np.ascontiguousarray(each, np.float16) for each in (result if isinstance(result, tuple | list) else [result])
    ]


def same_runs(first, second, seed=5, chips=CHIPS):
    draw = np.random.default_rng(seed)
    data = [draw.standard_normal(port.shape).astype(np.float16) for port in first.inputs]
    for chip in chips:
        one, two = run(first, data, chip), run(second, data, chip)
        if isinstance(one, str) or isinstance(two, str):
            assert type(one) is type(two), (chip, one, two)
            continue
        for left, right in zip(one, two, strict=True):
            np.testing.assert_array_equal(left.view(np.uint16).reshape(-1), right.view(np.uint16).reshape(-1))


CASES = [(tag, number) for tag in readable_tags() for number in range(len(EXAMPLES.get(tag, [None])))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("tag", "number"), CASES)
def test_every_readable_unit_comes_back(tmp_path, tag, number):
    example = EXAMPLES[tag][number] if tag in EXAMPLES else drawn(tag, tmp_path)
    file = authored(tmp_path, tag, example)
    graph = af.load(file)
    saved = af.save_netplist(graph, tmp_path / "again.plist")
    back = af.load(saved.path)
    before, after = network(file), network(saved.path)
    assert after["Units"] == ["u"]
    assert after["u"]["Type"] == tag
    places = ("KernelIndex", "KernelOffset")
    told = {key: plain(key, value) for key, value in before["u"]["Params"].items() if key not in places}
    found = {key: plain(key, value) for key, value in after["u"]["Params"].items()}
    assert told.items() <= found.items()
    assert len(after["u"]["Bottom"]) == len(before["u"]["Bottom"])
    read = [name for name in before["u"]["Bottom"] if name not in before["Constants"]]
    assert [name for name in after["u"]["Bottom"] if name not in after["Constants"]] == read
    third = af.save_netplist(back, tmp_path / "third.plist", binary=True)
    assert network(third.path) | {"Weights": []} == after | {"Weights": []}
    stored = [None if each.weights is None else each.weights.read_bytes() for each in (saved, third)]
    assert stored[0] == stored[1]
    same_runs(graph, back)


def conv_net():
    x = af.input((1, 3, 12, 12), name="image")
    stem = (af.conv(x, half(8, 3, 3, 3), bias=half(8), pad=1).named("stem")).relu().named("act")
    left = af.conv(stem, half(8, 8, 3, 3), pad=1).named("left")
    right = stem.avg_pool(3, 1, 1).named("right")
    joined = af.concat([left, right], axis=1).named("joined")
    return [joined.max_pool(2, 2).named("pooled"), (left + stem).clip(0, 6).named("sum")]


def product_net():
    a, b = af.input((6, 8), name="a"), af.input((10, 8), name="b")
    return ((a @ b.T).named("scores") * 0.5).softmax(-1).named("weights")


def attention_net():
    q, k, v = (af.input((1, 2, 16, 8), name=name) for name in "qkv")
    return af.sdpa(q, k, v, scale=0.25).named("attended").gelu().named("out")


def pixel_net():
    x = af.input((1, 8, 4, 4), name="x")
    return af.pixel_shuffle(x, 2).sigmoid().reshape(1, 2, 4, 16).transpose([0, 3, 1, 2]).named("y")


NETS = {"conv": conv_net, "product": product_net, "attention": attention_net, "pixels": pixel_net}


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_networks_come_back(tmp_path, name, binary):
    graph = af.Graph.of(NETS[name]())
    saved = af.save_netplist(graph, tmp_path / "net.plist", binary)
    assert saved.path.read_bytes().startswith(b"bplist" if binary else b"<?xml")
    back = af.load(saved.path)
    assert [port.name for port in back.inputs] == [port.name for port in graph.inputs]
    assert [port.name for port in back.outputs] == [port.name for port in graph.outputs]
    given = {node.name for node in graph.nodes if node.name}
    assert given <= set(back.names().values())
    same_runs(graph, back)
    again = af.save_netplist(back, tmp_path / "again.plist")
    assert network(again.path) | {"Weights": []} == network(saved.path) | {"Weights": []}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", NETS)
def test_networks_for_a_chip(tmp_path, name, chip):
    """With a target, phases 0 and 1 come first; when the file is compiled they find nothing new to join."""
    graph = af.Graph.of(NETS[name]())
    saved = af.save_netplist(graph, tmp_path / "net.plist", target=chip)
    same_runs(graph, af.load(saved.path), chips=[chip])


def test_a_linear_layer_needs_a_target(tmp_path):
    """No key of Linear is published. Phase 1 makes it a convolution, which has keys."""
    x = af.input((1, 8, 1, 1), name="x")
    out = af.linear(x.reshape(1, 8), half(4, 8)).named("fc")
    with pytest.raises(ExportError, match=r"fc \(Linear is not supported; the published schema has no names"):
        af.save_netplist(out, tmp_path / "net.plist")
    saved = af.save_netplist(out, tmp_path / "net.plist", target="m1")
    assert saved.units["Conv"] == 1


def test_host_ops_are_refused(tmp_path):
    ids = af.input((1, 8), dtype="int32", name="ids")
    with pytest.raises(ExportError, match="ids: the op works on whole numbers or runs on the host"):
        af.save_netplist(ids, tmp_path / "net.plist")


def test_the_examples_are_what_their_script_writes(tmp_path, monkeypatch):
    folder = Path(__file__).parents[1] / "examples"
    script = runpy.run_path(str(folder / "write_netplists.py"))
    for name in ("attention", "convnet"):
        monkeypatch.setitem(script[name].__globals__, "FOLDER", tmp_path)
        script[name]()
        for file in (f"{name}.plist", f"{name}.weights.bin"):
            assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def test_the_command_writes_either_form(tmp_path, capsys):
    file = Path(__file__).parents[1] / "examples" / "attention.plist"
    export.run(str(file), str(tmp_path / "again.plist"), None, None, False, True, True)
    assert json.loads(capsys.readouterr().out)["units"] == {"SDPA": 1}
    assert (tmp_path / "again.plist").read_bytes().startswith(b"bplist")
    with pytest.raises(ArgumentError, match="it is for netplists"):
        export.run(str(file), str(tmp_path / "again.mlpackage"), None, None, False, True, True)


def test_nodes_of_one_name_stay_apart(tmp_path):
    x = af.input(PLANE, name="x")
    out = x.reshape(1, 4, 8, 6).named("turn").reshape(1, 4, 48, 1).named("turn").relu().named("y")
    saved = af.save_netplist(out, tmp_path / "net.plist")
    assert saved.units == {"Reshape": 2, "Neuron": 1}
    with pytest.raises(ExportError, match="the graph has no layers"):
        af.save_netplist(x, tmp_path / "other.plist")


def test_interleave_goes_along(tmp_path):
    file = authored(tmp_path, "Softmax", EXAMPLES["Softmax"][0])
    content = plistlib.loads(file.read_bytes())
    content["ProcedureList"][0]["InputList"][0]["InputInterleave"] = 4
    content["ProcedureList"][0]["OutputList"][0]["OutputInterleave"] = 2
    file.write_bytes(plistlib.dumps(content))
    af.save_netplist(file, tmp_path / "again.plist")
    procedure = read_procedure(tmp_path / "again.plist")
    assert (procedure.inputs[0].interleave, procedure.outputs[0].interleave) == (4, 2)
    af.save_netplist(af.load(file), tmp_path / "other.plist", interleave={"x0": 8})
    assert read_procedure(tmp_path / "other.plist").inputs[0].interleave == 8
    for told, message in (({"z": 4}, "'z' is not a port"), ({"x0": 5}, "choose one: 1, 2, 3, 4, 8")):
        with pytest.raises(ExportError, match=message):
            af.save_netplist(af.load(file), tmp_path / "bad.plist", interleave=told)


def test_constants_keep_their_names(tmp_path):
    (tmp_path / "w.bin").write_bytes(half(4).tobytes())
    constants = {"shift": constant("shift", (1, 4, 1, 1))}
    told = {"u": unit("ElementWise", ["x", "shift"], {"Type": "Add"})}
    graph = af.load(written(tmp_path, told, {"x": PLANE}, {"u": "u"}, ["w.bin"], constants))
    saved = af.save_netplist(graph, tmp_path / "again.plist")
    after = network(saved.path)
    assert after["Constants"] == ["shift"]
    assert after["u"]["Bottom"] == ["x", "shift"]
    same_runs(graph, af.load(saved.path))


def test_blocks_are_aligned_and_stored_once(tmp_path):
    x, kernel = af.input((1, 3, 6, 6), name="x"), half(3, 3, 3, 3)
    out = af.conv(af.conv(x, kernel, pad=1), kernel, pad=1) + half(3, 1, 1)
    saved = af.save_netplist(out, tmp_path / "net.plist")
    assert saved.weights is not None
    assert saved.weights.stat().st_size == 192 + 64  # 162 bytes and 6, each to a multiple of 64
    units = network(saved.path)
    offsets = {units[name]["Params"].get("KernelOffset") for name in units["Units"]} - {None}
    assert len(offsets) == 1
    assert all(offset % 64 == 0 for offset in offsets)


def test_parameters_are_bit_patterns(tmp_path):
    x = af.input((1, 4, 4, 4), name="x")
    saved = af.save_netplist(x.leaky_relu(0.01).named("act"), tmp_path / "net.plist")
    assert network(saved.path)["act"]["Params"]["ReluSlope"] == bits(0.01)
    assert [str(each) for each in saved.rounded] == ["act: ReluSlope 0.01 is stored as 0.01000213623046875"]
    assert "rounded: act" in str(saved)


def test_all_that_has_no_form_is_named_at_once(tmp_path):
    x = af.input((1, 8, 8, 8), name="x")
    out = x.silu().named("swish")
    out = af.where(out > 0.5, out, 0.0).named("chosen")
    out = af.upsample_bilinear(out).named("larger")
    out = af.conv(out, half(8, 8, 3, 3), dilation=2).named("dilated")
    out = out.max_pool(2, (2, 1)).named("uneven")
    encoded = af.Encoded.affine(np.ones((8, 8, 1, 1), np.int8), np.full(8, 0.5), axis=0)
    out = af.conv(out, encoded).named("packed")
    with pytest.raises(ExportError) as refused:
        af.save_netplist(out, tmp_path / "net.plist")
    message = str(refused.value)
    for words in (
        "swish (Type is 'Swish'",
        "chosen (select reads truth values",
        "larger (Resize is not supported; the published schema",
        "dilated (the kernel is dilated",
        "uneven (the steps are 2 and 1",
        "packed (the kernel is compressed",
    ):
        assert words in message, words
    assert "6 nodes have no published form" in message
    assert not list(tmp_path.iterdir())


def test_what_is_there_stays(tmp_path):
    x = af.input((1, 4, 4, 4), name="x")
    file = tmp_path / "net.plist"
    af.save_netplist(x.relu(), file)
    before = file.read_bytes()
    with pytest.raises(ExportError, match="the file exists"):
        af.save_netplist(x.tanh(), file)
    with pytest.raises(ExportError, match="no published form"):
        af.save_netplist(x.silu(), file, overwrite=True)
    assert file.read_bytes() == before
    af.save_netplist(x.tanh(), file, overwrite=True)
    assert file.read_bytes() != before
    with pytest.raises(ExportError, match=r"ends in \.plist"):
        af.save_netplist(x, tmp_path / "net.xml")
    with pytest.raises(ExportError, match="does not exist"):
        af.save_netplist(x, tmp_path / "no" / "net.plist")
