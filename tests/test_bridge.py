"""``af.bridge``: which types it takes, what their parameters are called, and what it says when it refuses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import aneforge as af
from aneforge.engine.authoring.bridge import own_types
from aneforge.engine.authoring.native_rules import RULES, UNREAD
from aneforge.engine.native import layer_types
from aneforge.graph.node import definitions

pytestmark = pytest.mark.filterwarnings("ignore::aneforge.cost.estimate.DispatchFloorWarning")
X, ROWS = af.input((1, 4, 6, 8), name="x"), af.input((4, 9), name="rows")
ORDER = {"SortDimension": "Width", "VectorDimension": "Channel", "SortIndices": [0]}
THREE = ["Channel", "Height", "Width"]
STATE = af.live_state((1, 4, 6, 12), "cache")
SLICE = {"DynamicSliceAxisOrder": ["Width"], "DynamicSliceInfo": [{"Coordinate": "Width", "SliceSize": 2}]}
POINTS = af.input((1, 3, 1, 7), name="points")

WAYS = {
    "AffineTransform": ([X, [1, 0, 0, 0, 1, 0]], {"height": 3, "width": 5}, (1, 4, 3, 5)),
    "ArgMinMax": ([X], {"Mode": "ChannelArgMax"}, (1, 1, 6, 8)),
    "BatchToSpace": ([af.input((4, 2, 3, 3))], {"FactorX": 2, "FactorY": 2}, (1, 2, 6, 6)),
    "Broadcast": ([af.input((4, 1))], {"BroadcastInfo": [{"Dimension": "Width", "Size": 3}]}, (4, 3)),
    "ChannelToSpace": ([X], {"FactorX": 2, "FactorY": 2}, (1, 1, 12, 16)),
    "Concat": ([X, X], {"Dimension": "Channel"}, (1, 8, 6, 8)),
    "Conv": ([X, np.ones((2, 4, 3, 3))], {"Type": "Conv", "KernelWidth": 3, "KernelHeight": 3}, (1, 2, 4, 6)),
    "CostVolume": ([af.input((1, 1, 1, 4)), af.input((1, 1, 1, 6))], {"DisparityRange": 2}, (1, 3, 1, 4)),
    "CropResize": ([X, [[0, 0], [2, 2]]], {"crop_dims": [2, 2], "output_dims": [4, 4]}, (2, 4, 4, 4)),
    "CrossCorrelation": ([X, np.ones((1, 4, 2, 2))], {"TemplateWidth": 2, "TemplateHeight": 2}, (1, 1, 5, 7)),
    "CrossProduct": ([af.input((1, 3, 1, 1)), np.ones((1, 3, 1, 1))], {}, (1, 3, 1, 1)),
    "Dropout": ([X], {"rate": 0.25, "seed": 3}, X.shape),
    "DynamicGOC": ([X, np.ones((1, 4, 1, 1))], {"BiasOnly": True}, X.shape),
    "DynamicSlice": ([ROWS, af.input((1,))], SLICE, (4, 2)),
    "ElementWise": ([X, X], {"Type": "Sub"}, X.shape),
    "Flatten": ([X], {}, (192,)),
    "FurthestPointSampling": ([POINTS], {"CentroidCount": 3}, (1, 3, 1, 3)),
    "GOC": ([ROWS], {"ScaleScalar": 2.0}, ROWS.shape),
    "Gather": ([X, [0, 2]], {"GatherNDAxes": ["Width"]}, (1, 4, 6, 2)),
    "GlobalArgMinMax": ([ROWS], {"Type": "Min", "Dimension": "Width"}, (4, 1)),
    "InputView": ([ROWS], {"Dimension": "Width", "Offset": 1, "Size": 3}, (4, 3)),
    "InstanceNormalization": ([X], {"epsilon": 1e-3}, X.shape),
    "KernelRasterizer": ([X], {}, X.shape),
    "L2Normalization": ([X], {"axis": "Channel"}, X.shape),
    "LayerNormalization": ([X], {"axis": "Channel", "groups": 2}, X.shape),
    "Linear": ([X, np.ones((5, 4))], {}, (1, 5, 6, 8)),
    "LocalResponseNormalization": ([X], {"Type": "Channel", "KernelChannel": 4, "Alpha": 0.5}, X.shape),
    "MatrixMultiplication": ([ROWS, np.ones((9, 3))], {}, (4, 3)),
    "MinMaxNormalization": ([ROWS], {"Dimension": "Width", "Epsilon": 0.5}, ROWS.shape),
    "Neuron": ([af.input((9,))], {"Type": "Tanh"}, (9,)),
    "Padding": ([X], {"padding_sizes": [[1, 1], [2, 0]]}, (1, 4, 8, 10)),
    "PixelShuffle": ([X], {"FactorX": 2, "FactorY": 2}, (1, 1, 12, 16)),
    "PixelUnshuffle": ([X], {"FactorX": 2, "FactorY": 3}, (1, 24, 2, 4)),
    "Pooling": ([X], {"Type": "Max", "KernelWidth": 2, "KernelHeight": 2, "Step": [2, 2, 1]}, (1, 4, 3, 4)),
    "RadiusSearch": ([af.input((1, 3, 1, 2)), POINTS], {"Radius": 1.0}, (1, 7, 1, 2)),
    "RandomGenerator": ([], {"shape": [2, 3]}, (2, 3)),
    "Reduction": ([X], {"Type": "Sum", "Dimension": ["Width"]}, (1, 4, 6, 1)),
    "Resample": ([X, np.zeros((1, 2, 3, 3))], {"SamplingMethod": "NearestNeighbor"}, (1, 4, 3, 3)),
    "Reshape": ([X], {"ReshapedHeight": 8, "ReshapedWidth": 6}, (1, 4, 8, 6)),
    "Resize": ([X], {"height": 12, "width": 4, "sampling_methods": "NearestNeighbor"}, (1, 4, 12, 4)),
    "ResizeAs": ([X, af.input((1, 1, 3, 4))], {}, (1, 4, 3, 4)),
    "RingBufferReader": ([STATE], {"offset": 10, "size": 4}, (1, 4, 6, 4)),
    "RingBufferWriter": ([X, STATE], {"offset": 5}, STATE.shape),
    "SDPA": ([X, X, X, 0.5, np.zeros((6, 6))], {"SubtractMax": True}, X.shape),
    "ScaledElementWise": ([X, X], {"Type": "Add", "Scale": 2.0}, X.shape),
    "Softmax": ([ROWS], {"Dimension": "Width"}, ROWS.shape),
    "Sort": ([ROWS], {"Direction": "Ascending", **ORDER}, ROWS.shape),
    "SpaceToBatch": ([X], {"FactorX": 2, "FactorY": 2}, (4, 4, 3, 4)),
    "SpaceToChannel": ([X], {"FactorX": 2, "FactorY": 2}, (1, 16, 3, 4)),
    "Tile": ([ROWS], {"Width": 2}, (4, 18)),
    "TopK": ([ROWS], {"Type": "Max", "K": 2, **ORDER}, (4, 2)),
    "Transpose": (
        [X],
        {
            "TransposeDimensions": [
                {"TransposeSourceDimension": "Height", "TransposeDestinationDimension": "Width"},
                {"TransposeSourceDimension": "Width", "TransposeDestinationDimension": "Height"},
            ]
        },
        (1, 4, 8, 6),
    ),
    "Unflatten": ([af.input((1, 24, 1, 1))], {"destination_size": [2, 3, 4]}, (1, 2, 3, 4)),
}


def test_every_type_is_taken_or_refused_with_a_reason():
    tags = {layer.tag for layer in layer_types()}
    assert set(WAYS) | set(UNREAD) == tags | {"RingBufferReader"}
    assert set(WAYS) == set(RULES)


@pytest.mark.parametrize("tag", WAYS)
def test_a_type_becomes_an_op_of_its_shape(tag):
    bottoms, params, shape = WAYS[tag]
    out = af.bridge(tag, bottoms, name="named", **params)
    assert out.shape == shape
    assert out.name == "named"


@pytest.mark.parametrize(
    "layer", [layer for layer in layer_types() if layer.name != layer.tag], ids=lambda one: one.name
)
def test_a_type_goes_by_the_name_of_its_descriptor_too(layer):
    if layer.tag in WAYS:
        bottoms, params, shape = WAYS[layer.tag]
        assert af.bridge(layer.name, bottoms, **params).shape == shape


@pytest.mark.parametrize("tag", sorted(UNREAD))
def test_a_type_that_cannot_be_authored_says_why(tag):
    with pytest.raises(af.GraphError, match=rf'^bridge\("{tag}"\): ') as caught:
        af.bridge(tag, [X, X] if tag == "NMS" else [X])
    assert UNREAD[tag] in str(caught.value)


def test_our_own_names_are_ours_alone():
    """A netplist states published names only (U87)."""
    from aneforge.engine.authoring.build import build_layer

    for tag in own_types():
        layer = next((layer for layer in layer_types() if layer.tag == tag), None)
        if layer is not None and not layer.is_published:
            with pytest.raises(af.GraphError, match="in a netplist are not published"):
                build_layer(tag, WAYS[tag][0], WAYS[tag][1])


REFUSALS = [
    ("TopK", [X], {"K": 2}, "parameter Type is missing; add it (InvalidParamSyntax)"),
    ("TopK", [X], {"Type": "Max", "K": 2.5, **ORDER}, "K is 2.5; it must be an integer (InvalidParamSyntax)"),
    ("TopK", [X], {"Type": "Best", "K": 2, **ORDER}, "Type is 'Best'; choose one: Max, Min (InvalidParamSyntax)"),
    ("TopK", [X], {"Type": "Max", "k": 2, **ORDER}, "parameter 'k' is unknown; the layer takes: K"),
    ("TopK", [X], {"Type": "Max", "K": 9, **ORDER}, "k is 9, but a row has only 8 elements"),
    ("Sort", [X], {"Direction": "Ascending", **ORDER, "SortIndices": [4]}, "key lanes are [4]"),
    ("Sort", [X], {"Direction": "Ascending", **ORDER, "VectorDimension": "Width"}, "they must differ"),
    ("SDPA", [X, X], {"SubtractMax": True}, "the unit has 2 bottoms; expected 4 or 5"),
    ("SDPA", [X, X, X, af.input((1,))], {"SubtractMax": True}, "the scale must be a constant of one number"),
    ("SDPA", [X, X, X, 1.0, np.zeros((5, 6))], {"SubtractMax": True}, "expected one plane of 6 x 6"),
    ("Conv", [X], {"Type": "Conv", "KernelWidth": 3, "KernelHeight": 3, "OutputChannels": 2}, "has no kernel"),
    ("Conv", [X, np.ones((2, 4, 3, 3))], {"Type": "Conv", "KernelWidth": 1, "KernelHeight": 3}, "the kernel is"),
    ("CostVolume", [X, X], {"DisparityRange": 1, "DisparityDirection": 1}, "DisparityDirection is 1; it must be 0"),
    ("CostVolume", [X, X], {"DisparityRange": 1, "ScaleFactorX": 2.0}, "how the layer scales is not published"),
    ("FurthestPointSampling", [POINTS], {"CentroidCount": 2, "DistanceMetric": "L1"}, "always Euclidean; use L2"),
    ("Gather", [X, X], {"GatherNDAxes": ["Width"]}, "the indices must be a constant"),
    (
        "Gather",
        [X, np.zeros((1, 2, 3, 1))],
        {"GatherNDAxes": ["Channel", "Height", "Width"]},
        "expected [1, 3, places",
    ),
    ("Gather", [X, [4097]], {"GatherNDAxes": ["Width"]}, "holds an integer that fp16 does not hold"),
    ("KernelRasterizer", [X], {"KernelWidth": 3}, "only the configuration that changes nothing compiles"),
    ("Neuron", [X], {"Type": "LeakyReLU"}, "LeakyReLU needs ReluSlope; add it"),
    ("ElementWise", [X], {"Type": "Add"}, "Add has 1 bottoms; expected 2"),
    ("RingBufferWriter", [X, X], {}, "it must be af.live_state(...)"),
    ("Reverse", [X], {}, "has no exported validator, so direct authoring does not reach it; use x.reverse(axes)"),
    ("RCAS", [X], {}, "has no exported validator"),
    ("Atention", [X], {}, "not a type of native layer"),
    (3, [X], {}, "the type must be the name of a layer"),
    ("Pooling", [af.input((1, 2, 3, 4, 5))], {"Type": "Max", "KernelWidth": 2, "KernelHeight": 2}, "has a depth"),
    ("LocalResponseNormalization", [X], {"Type": "Channel", "KernelChannel": 5, "Alpha": 1.0}, "use 4 at most"),
    ("InputView", [X], {"Dimension": "Width", "Offset": 6, "Size": 3}, "3 elements from 6 do not fit 8"),
    ("Dropout", [X], {"rate": 1.0}, "rate is 1; it must be at least 0 and below 1"),
    ("Neuron", ["x"], {"Type": "ReLU"}, "bottom 0"),
]


@pytest.mark.parametrize(("tag", "bottoms", "params", "message"), REFUSALS)
def test_a_refusal_names_the_layer_and_what_to_do(tag, bottoms, params, message):
    with pytest.raises(af.GraphError) as caught:
        af.bridge(tag, bottoms, **params)
    assert str(caught.value).startswith(f'bridge("{tag}"): ')
    assert message in str(caught.value)


def test_the_default_of_attention_is_the_descriptors_and_warns():
    with pytest.warns(af.PrecisionWarning, match=r"SDPA: SubtractMax is false.*Write SubtractMax=True") as caught:
        loose = af.bridge("SDPA", [X, X, X, 0.5])
    assert caught[0].filename == __file__
    assert not loose.attrs["subtract_max"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert af.bridge("SDPA", [X, X, X, 0.5], SubtractMax=True).attrs["subtract_max"]
        assert af.sdpa(X, X, X).attrs["subtract_max"]
    with pytest.warns(af.PrecisionWarning, match="sdpa-subtract-max"):  # and the rule says so again
        af.compile(loose, target="m1")


@pytest.mark.parametrize("scale", [0.5, np.float16(0.5), np.array([0.5]), np.full((1, 1, 1, 1), 0.5), af.const([0.5])])
def test_the_scale_of_attention_is_one_number_in_any_form(scale):
    assert af.bridge("SDPA", [X, X, X, scale], SubtractMax=True).attrs["scale"] == 0.5


def test_an_unflatten_builds_and_no_chip_takes_it():
    bottoms, params, _ = WAYS["Unflatten"]
    with pytest.raises(af.CompileError, match="nflatten"):
        af.compile(af.bridge("Unflatten", bottoms, **params), target="m5")


def test_whole_tensor_positions_run_on_the_m1_when_authored():
    """Two routes, two answers (C13): conversion starts at A15, the byte of the direct route is set from A13 on."""
    out = af.bridge("GlobalArgMinMax", [X], Type="Max", Dimension="Width")
    given = np.random.default_rng(0).standard_normal(X.shape)
    np.testing.assert_array_equal(af.compile(out, target="m1")(given), given.astype(np.float16).argmax(3)[..., None])


def test_no_native_op_is_without_a_way_to_author_it():
    """Every native layer of the graph language is reached by some type."""
    reached = set()
    for tag, (bottoms, params, _) in WAYS.items():
        reached |= {node.op for node in af.bridge(tag, bottoms, **params).graph()}
    reached |= {node.op for node in af.bridge("PixelShuffle", [af.input((1, 6, 2, 2))], FactorX=3, FactorY=2).graph()}
    index = np.zeros((1, 3, 2, 1))
    reached |= {node.op for node in af.bridge("Gather", [X, index], GatherNDAxes=THREE).graph()}
    native = {name for name, declared in definitions().items() if declared.native_layer}
    assert native - reached == {"argmax"}  # ArgMinMax as rows have it: its own type builds arg_min_max
