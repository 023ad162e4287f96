"""The validators, layer by layer: accept at the boundary, reject one step beyond, and the exact words."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import seed_tables as seed

import aneforge as af
from aneforge.cli.app import app
from aneforge.compiler.legal.rules import RULES
from aneforge.compiler.legal.rules.base import STAGES, rule_records, validator_records
from aneforge.compiler.refusal import CompileError
from aneforge.errors import ArgumentError, UnknownNameError
from aneforge.gate import Query, judge
from aneforge.native import layer_type, layer_types
from aneforge.targets import op_routes, store
from aneforge.validate import (
    EXPORTS,
    program_view,
    validate_all,
    validate_layer,
    validate_module,
    validate_mutable_procedure,
    validate_network,
    validate_program,
)
from aneforge.validate import program as loader

MAP, ROW, POINTS = (1, 8, 16, 16), (1, 4, 1, 16), (1, 3, 1, 64)
HEADS = (1, 8, 197, 64)
VECTOR = (1, 3, 1, 1)
RANK = {"Type": "Max", "K": 5, "SortDimension": "Width", "VectorDimension": "Channel", "SortIndices": [0]}
SORT = {"Direction": "Ascending", "SortDimension": "Width", "VectorDimension": "Channel", "SortIndices": [0]}
POOL = {"Type": "Max", "KernelWidth": 3, "KernelHeight": 3}
CONV = {"Type": "Conv", "KernelWidth": 13, "KernelHeight": 29}
WINDOW = {"Mode": "SpatialArgMax", "KernelWidth": 3, "KernelHeight": 3}
LRN = {"Type": "Channel", "KernelChannel": 8, "Alpha": 0.5}
VIEW = {"Dimension": "Width", "Offset": 4, "Size": 6, "Step": 2}
GATHER = {"GatherNDAxes": ["Channel", "Height", "Width"]}
ONE_LAYER = "the layer has {} bottoms; it takes {}"


def no(message="", chip="m5", stage="validator", bottoms=None, route="direct", fields=None, more=None, **params):
    """A layer one step beyond: what changes of the accepted one, and who says what."""
    return message, chip, stage, bottoms, route, fields or {}, more or {}, params


TEXTURE = "the layer needs the support byte texture_engine (0x81d); it is clear on h13"
NOT_THERE = "passes its validator on h13 and fails code generation"

# tag: parameters, bottoms and fields that a chip accepts; then what it rejects. A message is exact, or a part of ours.
CASES = {
    "AffineTransform": (
        {},
        [MAP, (1, 1, 1, 6)],
        {},
        [
            no("affine transform is not supported on this architecture", "m1"),
            no(ONE_LAYER.format(1, 2), bottoms=[MAP]),
            no("bottom 1 has elements of uint8", more={"dtypes": ["fp16", "uint8"]}),
        ],
    ),
    "ArgMinMax": (
        {**WINDOW, "PadLeft": 2, "PadRight": 2},
        [(1, 8, 2048, 16)],
        {},
        [
            no("ArgMinMax layer must have one input", bottoms=[MAP, MAP]),
            no(
                "ArgMinMax left padding value should be smaller than kernel width 3, but 3 is given",
                PadLeft=3,
                PadRight=3,
            ),
            no("PadLeft is -1; it must be at least 0", PadLeft=-1),
            no("PadTop is 3; it must be below KernelHeight, which is 3", PadTop=3),
            no("PadLeft is 1; it must be equal to PadRight, which is 2", PadLeft=1),
            no("Step is 3; it must be one of 1, 2, 4", fields={"Step": [3, 3]}),
            no("PadFront is 1; it must be equal to 0", fields={"PadFront": 1}),
            no("the reduced axis is 2049 long", bottoms=[(1, 8, 2049, 16)]),
            no("the reduced axis is 2049 long", bottoms=[(1, 2049, 8, 8)], Mode="ChannelArgMax"),
        ],
    ),
    "BatchToSpace": (
        {"FactorX": 6, "FactorY": 2},
        [(12, 8, 8, 8)],
        {},
        [
            no(
                "Input batch n = 13 is not divisible by factor x = 6 * factor y = 2",
                bottoms=[(13, 8, 8, 8)],
            ),
            no("FactorX is 5; it must be a product of 2, 3, 4, 8", FactorX=5, bottoms=[(10, 8, 8, 8)]),
            no("FactorZ is 2; it must be equal to 1", FactorZ=2),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "Broadcast": (
        {"BroadcastInfo": [{"Dimension": "Width", "Size": 8}]},
        [(1, 8, 16, 1)],
        {},
        [
            no(
                "Broadcast along depth axis is not supported on this architecture",
                "m1",
                BroadcastInfo=[{"Dimension": "Depth", "Size": 4}],
            ),
            no("the width of bottom 0 is 2; only an axis of 1 can be broadcast", bottoms=[(1, 8, 16, 2)]),
            no(ONE_LAYER.format(0, 1), bottoms=[]),
        ],
    ),
    "ChannelToSpace": (
        {"FactorX": 2, "FactorY": 2, "FactorZ": 1},
        [MAP],
        {},
        [
            no("ChannelToSpace in z dimension is not supported, current factor.z = 2.", FactorZ=2),
            no("FactorX is 5", FactorX=5),
            no("the channel of bottom 0 is 6; it must be divisible by", bottoms=[(1, 6, 8, 8)]),
            no(ONE_LAYER.format(0, 1), bottoms=[]),
        ],
    ),
    "Concat": (
        {"Dimension": "Width"},
        [MAP, (1, 8, 16, 3)],
        {},
        [
            no("Concat layer must have at least 2 inputs", bottoms=[MAP]),
            no("ANE Concat supports only supports const positive axis", Dimension="Batch"),
            no("bottom 1 is (1, 7, 1, 16, 3); its extents must be", bottoms=[MAP, (1, 7, 16, 3)]),
        ],
    ),
    "Conv": (
        {**CONV, "KernelDepth": 1},
        [(1, 8, 64, 64)],
        {"OutputChannels": 12, "NumGroups": 4},
        [
            no("Invalid conv kernel width = 14, It should be in [1,13]", "m1", KernelWidth=14),
            no("Invalid conv kernel height = 30, It should be in [1,29]", "m1", KernelHeight=30),
            no("KernelWidth is 0; it must be at least 1", KernelWidth=0),
            no("input/output channels should be divisible by num group", fields={"NumGroups": 3}),
            no("input/output channels should be divisible by num group", fields={"OutputChannels": 10}),
            no("larger than its padded input", bottoms=[(1, 8, 28, 64)]),
            no("the rank of bottom 0 is 3", bottoms=[(8, 64, 64)]),
            no("not supported on any backend", stage="code generation", KernelDepth=2),
            no("not supported on any backend", stage="code generation", bottoms=[(1, 8, 4, 64, 64)]),
            no("parameter 'NumGroups' is unknown", stage="frontend", NumGroups=2),
            no("a compressed kernel of 7 bits", more={"kernel": {"encoding": "sparse", "bits": 7}}),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "CropResize": (
        None,
        [MAP, (1, 4, 1, 1)],
        {},
        [
            no("Codegen Error: Invalid Texture CropCfg", "m5", "code generation"),
            no("Codegen Error: Invalid Texture CropCfg", "m4", "code generation"),
            no(TEXTURE, "m1"),
            no("bottom 1 has elements of uint8", more={"dtypes": ["fp16", "uint8"]}),
            no("SamplingMethod is Linear, Nearest", SamplingMethod=["Linear", "Nearest"]),
            no(ONE_LAYER.format(1, 2), bottoms=[MAP]),
        ],
    ),
    "CrossCorrelation": (
        {"TemplateWidth": 13, "TemplateHeight": 3},
        [(1, 1, 16, 64), (1, 1, 3, 13)],
        {},
        [
            no("Invalid conv kernel width = 14, It should be in [1,13]", "m1", TemplateWidth=14),
            no("Invalid conv kernel width = 16, It should be in [1,15]", "m5", TemplateWidth=16),
            no("the depth of bottom 1 is 2; it must be equal to 1", bottoms=[(1, 1, 16, 64), (1, 1, 2, 3, 13)]),
            no(ONE_LAYER.format(1, 2), bottoms=[MAP]),
        ],
    ),
    "CrossProduct": (
        {},
        [VECTOR, VECTOR],
        {"InputInterleave": 1},
        [
            no("the channel of bottom 0 is 4; it must be equal to 3", bottoms=[(1, 4, 1, 1), VECTOR]),
            no("the width of bottom 1 is 2; it must be equal to 1", bottoms=[VECTOR, (1, 3, 1, 2)]),
            no("the height of bottom 1 is 2", bottoms=[VECTOR, (1, 3, 2, 1)]),
            no("the depth of bottom 0 is 2", bottoms=[(1, 3, 2, 1, 1), VECTOR]),
            no("InputInterleave is 2; it must be equal to 1", fields={"InputInterleave": 2}),
            no("bottom 0 has elements of uint8", more={"dtypes": ["uint8", "uint8"]}),
            no(ONE_LAYER.format(1, 2), bottoms=[VECTOR]),
        ],
    ),
    "Dropout": (
        {"Rate": 0.5},
        [MAP],
        {},
        [
            no("Dropout layer is not supported on this architecture.", "m1"),
            no("Dropout layer is not supported on this architecture.", "m2"),
            no("Rate is 1; it must be below 1", Rate=1),
            no("Rate is -0.25; it must be at least 0", Rate=-0.25),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "DynamicGOC": (
        {},
        [MAP, (1, 8, 1, 1), (1, 8, 1, 1)],
        {},
        [
            no(ONE_LAYER.format(1, "2 or 3"), bottoms=[MAP]),
            no(ONE_LAYER.format(4, "2 or 3"), bottoms=[MAP] * 4),
            no("the height of bottom 1 is 2; it must be equal to 1", bottoms=[MAP, (1, 8, 2, 1)]),
            no("bottom 0 has elements of uint8", more={"dtypes": ["uint8", "fp16", "fp16"]}),
        ],
    ),
    "DynamicSlice": (
        {"DynamicSliceAxisOrder": ["Width"], "DynamicSliceInfo": [{"Coordinate": "Width", "SliceSize": 2}]},
        [(1, 1, 1, 4), (1, 1, 1, 1)],
        {},
        [
            no(NOT_THERE, "m1", "code generation"),
            no(ONE_LAYER.format(1, 2), bottoms=[ROW]),
            no("parameter DynamicSliceInfo is missing", stage="frontend", DynamicSliceInfo=None),
        ],
    ),
    "ElementWise": (
        {"Type": "Add"},
        [MAP, MAP],
        {},
        [
            no(ONE_LAYER.format(3, "1 or 2"), bottoms=[MAP] * 3),
            no("Type is 'LessThanEqual'; choose one", stage="frontend", Type="LessThanEqual"),
        ],
    ),
    "Flatten": ({}, [MAP], {}, [no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP])]),
    "GOC": (
        {"ScaleScalar": 2.0, "BiasScalar": 1.0},
        [MAP],
        {},
        [no("Must have 2 inputs when convert EW to GOC", bottoms=[MAP, MAP, MAP])],
    ),
    "Gather": (
        GATHER,
        [MAP, (1, 3, 7, 1)],
        {},
        [
            *(
                no("Cannot decompose layer on this architecture", "m1", bottoms=bottoms)
                for bottoms in (
                    [(2, 8, 16, 16), (1, 3, 7, 1)],
                    [(1, 8, 2, 16, 16), (1, 3, 7, 1)],
                    [MAP, (1, 2, 7, 1)],
                    [MAP, (1, 3, 7, 2)],
                    [MAP, (1, 3, 2, 7, 1)],
                )
            ),
            no("Cannot decompose layer on this architecture", "m1", GatherNDAxes=["Height", "Width"]),
            no("Cannot decompose layer on this architecture", "m1", GatherNDAxes=["Depth", "Height", "Width"]),
            no("the channel of bottom 1 is 3; it must be divisible by IndexInterleave", fields={"IndexInterleave": 2}),
            no(ONE_LAYER.format(1, 2), bottoms=[MAP]),
        ],
    ),
    "GlobalArgMinMax": (
        {"Type": "Max", "Dimension": "Width"},
        [(1, 1, 1, 2048)],
        {},
        [
            no("the reduced axis is 2049 long", bottoms=[(1, 1, 1, 2049)]),
            no("Dimension is Depth; it must be one of Width, Height, Channel", Dimension="Depth"),
            no("the layer needs the support byte global_arg (0x4f2)", "h12"),
            no("is not available on h13 by the conversion route", "m1", "frontend", route="conversion"),
            no("is not available on h14g by the conversion route", "m2", "frontend", route="conversion"),
            no(ONE_LAYER.format(2, 1), bottoms=[ROW, ROW]),
        ],
    ),
    "InputView": (
        VIEW,
        [ROW],
        {},
        [
            no("InvalidInputViewDimension", Dimension="Batch"),
            no("InvalidInputViewOffset", Offset=-1),
            no("InvalidInputViewOffset", Offset=16, Size=1),
            no("InvalidInputViewSize", Size=0),
            no("InvalidInputViewSize", Size=7),
            no("InvalidInputViewSize", Step=-1),
            no("InvalidInputViewStep", Step=0),
            no(ONE_LAYER.format(2, 1), bottoms=[ROW, ROW]),
        ],
    ),
    "InstanceNormalization": (
        {"Dimension": ["Height", "Width"]},
        [MAP],
        {},
        [
            no("InstanceNorm layer not supported for this ANE architecture", "h12"),
            no("Dimension is Channel; it must be one of Width, Height, Depth", Dimension=["Channel", "Width"]),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "L2Normalization": ({}, [MAP], {}, [no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP])]),
    "LocalResponseNormalization": (
        {**LRN, "KernelChannel": 15},
        [(1, 15, 8, 8)],
        {},
        [
            no("ANECCompile() FAILED", stage="code generation", bottoms=[(1, 16, 8, 8)]),
            no("ANECCompile() FAILED", stage="code generation", KernelChannel=16),
            no("KernelChannel is 0; it must be at least 1", KernelChannel=0),
            no("parameter Alpha is missing", stage="frontend", Alpha=None),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "LayerNormalization": (
        {"NumGroups": 4},
        [MAP],
        {},
        [
            no("the channel of bottom 0 is 8; it must be divisible by NumGroups, which is 3", NumGroups=3),
            no("... does not yet support depth > 1", bottoms=[(1, 8, 2, 16, 16)]),
            no("OutputType is Int8; it must be one of Float16, Float32", fields={"OutputType": "Int8"}),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "Linear": (
        {},
        [MAP],
        {},
        [
            no("Linear layer must have only one single input.", bottoms=[MAP, MAP]),
            no("ANE cannot support Linear with input rank >= 5", bottoms=[(1, 8, 1, 1, 16)]),
            no("a compressed kernel of 4 bits", more={"kernel": {"encoding": "sparse", "bits": 4}}),
        ],
    ),
    "MatrixMultiplication": (
        {},
        [(1, 8, 1, 16), (1, 16, 1, 4)],
        {},
        [
            no("Matrix mult. layer can only have two bottoms", bottoms=[MAP]),
            no("depth > 1 is not supported for MatMult", bottoms=[(1, 8, 2, 1, 16), (1, 16, 1, 4)]),
            no("bottom 0 has 16 columns and bottom 1 has 15 rows", bottoms=[(1, 8, 1, 16), (1, 15, 1, 4)]),
            no("can not fit the Kmem", "m1", bottoms=[(1, 8, 1, 32769), (1, 32769, 1, 4)]),
        ],
    ),
    "MinMaxNormalization": (
        {"Dimension": "Height", "Epsilon": 1e-3},
        [MAP],
        {},
        [
            no("the layer needs the support byte minmax_norm (0x818)", "m1", Dimension="Channel"),
            no("the layer needs the support byte minmax_norm (0x818)", "m5", Dimension="Channel"),
            no("Dimension is 'Depth'; choose one", stage="frontend", Dimension="Depth"),
            no("is not available by conversion", stage="frontend", route="conversion"),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "NMS": (
        None,
        [(1, 4, 1, 16), (1, 1, 1, 16)],
        {},
        [
            no("NMS passes its validator on h17 and fails code generation", stage="code generation"),
            no("the channel of bottom 0 is 5; it must be equal to 4", bottoms=[(1, 5, 1, 16), ROW]),
            no(ONE_LAYER.format(1, "2"), bottoms=[ROW]),
        ],
    ),
    "Neuron": (
        {"Type": "Sin"},
        [MAP],
        {},
        [
            no("This platform doesn't support Neuron Sin", "m1"),
            no("This platform doesn't support Neuron Cos", "m2", Type="Cos"),
            no("ReluMax is 0; it must be above 0", Type="ReLUN", ReluMax=0),
            no("Type is 'Erf'; choose one", stage="frontend", Type="Erf"),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "Padding": (
        None,
        [MAP],
        {},
        [
            no("Channel padding is not supported on ANE", PaddingSizes=[(0, 0), (0, 0), (1, 1), (0, 0), (0, 0)]),
            no("Architecture does not support padding mode.", "m1", PaddingMode="Reflective"),
            no("Architecture does not support padding mode.", "m1", PaddingMode="Symmetric"),
            no("Padding passes its validator on h17 and fails code generation", stage="code generation"),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "PixelShuffle": (
        {"FactorX": 8, "FactorY": 4},
        [(1, 32, 8, 8)],
        {},
        [
            no("returned invalid:", FactorX=6),
            no("returned invalid:", FactorZ=2),
            no("returned invalid:", bottoms=[(1, 33, 8, 8)]),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "PixelUnshuffle": (
        {"FactorX": 8, "FactorY": 4},
        [(1, 2, 8, 8)],
        {},
        [
            no("returned invalid:", FactorX=5),
            no("returned invalid:", FactorZ=2),
            no("returned invalid:", bottoms=[(1, 2, 8, 9)]),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "Pooling": (
        {**POOL, "PadLeft": 2, "PaddingMode": "Negative"},
        [(1, 8, 3, 3)],
        {},
        [
            no("Pool layer must have only one single input.", bottoms=[MAP, MAP]),
            no("PadLeft is 3; it must be below KernelWidth, which is 3", PadLeft=3),
            no("PadTop is -1; it must be at least 0", PadTop=-1),
            no("KernelHeight is 4; it must be at most the height of bottom 0", KernelHeight=4),
            no("PaddingMode is Zero; it must be one of Negative", PaddingMode="Zero"),
            no("Type is 'Min'; choose one", stage="frontend", Type="Min"),
        ],
    ),
    "RandomGenerator": (
        {"Low": 0.0, "High": 1.0},
        [],
        {"OutputType": "Float16"},
        [
            no("Random layer is not supported on this architecture.", "m1"),
            no("Random layer is not supported on this architecture.", "m2"),
            no("Low is 1; it must be below High, which is 1.0", Low=1),
            no("OutputType is Float32; it must be one of Int8, UInt8, Float16", fields={"OutputType": "Float32"}),
            no(ONE_LAYER.format(1, 0), bottoms=[MAP]),
        ],
    ),
    "Reduction": (
        {"Dimension": ["Width", "Depth"], "Type": "Sum"},
        [MAP],
        {},
        [
            no("Reduction layer can only have one bottom", bottoms=[MAP, MAP]),
            no("square operation after reduction is not supported", "m1", fields={"SquareOutput": True}),
            no("Dimension", stage="frontend", Dimension=["Batch"]),
        ],
    ),
    "Resample": (
        {"SamplingMethod": "NearestNeighbor"},
        [MAP, (1, 2, 16, 16)],
        {},
        [
            no("Channel size in coordinates should be 1 or 2", bottoms=[MAP, (1, 3, 16, 16)]),
            no("the depth of bottom 1 is 2; it must be equal to 1", bottoms=[MAP, (1, 2, 2, 16, 16)]),
            no(TEXTURE, "m1"),
            no("fails code generation when authored", stage="code generation", SamplingMethod="Linear"),
            no(ONE_LAYER.format(1, 2), bottoms=[MAP]),
        ],
    ),
    "Reshape": (
        {"ReshapedChannel": 16, "ReshapedHeight": 8},
        [MAP],
        {},
        [
            no("Cannot reshape a tensor of rank > 5", bottoms=[(1, 1, 1, 8, 16, 16)]),
            no("the result has 1792 elements; it must have 2048", ReshapedHeight=7),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "Resize": (
        {"Height": 32, "Width": 32},
        [MAP],
        {},
        [
            no("failed to map resize layer on this arch", "m1"),
            no("both Height and ScaleFactorY are stated", ScaleFactorY=2.0),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "ResizeAs": ({}, [MAP, MAP], {}, [no(TEXTURE, "m1"), no(ONE_LAYER.format(1, 2), bottoms=[MAP])]),
    "RingBufferWriter": (
        None,
        [MAP, MAP],
        {},
        [
            no("Circular buffer is not supported on this architecture", "m1"),
            no("RingBufferWriter passes its validator on h17 and fails code generation", stage="code generation"),
            no(ONE_LAYER.format(1, 2), bottoms=[MAP]),
        ],
    ),
    "SDPA": (
        {"SubtractMax": True},
        [HEADS, HEADS, HEADS, (1, 1, 1, 1), (1, 1, 197, 197)],
        {},
        [
            no("4 or 5 bottoms must be present for SDPA", bottoms=[HEADS] * 3),
            no("4 or 5 bottoms must be present for SDPA", bottoms=[HEADS] * 6),
            no("the shape of bottom 1 is", bottoms=[HEADS, HEADS, (1, 8, 197, 32), (1, 1, 1, 1)]),
            no("do not contract with keys", bottoms=[HEADS, (1, 8, 197, 32), (1, 8, 197, 32), (1, 1, 1, 1)]),
            no("do not contract with the mask", bottoms=[HEADS] * 3 + [(1, 1, 1, 1), (1, 1, 197, 196)]),
            no("the size of bottom 3 is 2; it must be equal to 1", bottoms=[HEADS] * 3 + [(1, 1, 1, 2)]),
            no("Mask format must be same as Q, K and V", more={"dtypes": ["fp16"] * 4 + ["uint8"]}),
        ],
    ),
    "ScaledElementWise": (
        {"Type": "Add", "Scale": 0.5},
        [MAP, MAP],
        {},
        [
            no("Type is 'Sub'; choose one: Add, Mult, Min, Max (InvalidParamSyntax)", stage="frontend", Type="Sub"),
            no(ONE_LAYER.format(1, 2), bottoms=[MAP]),
        ],
    ),
    "Shape": ({}, [MAP], {}, [no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP])]),
    "Softmax": (
        {"Dimension": "Width"},
        [MAP],
        {},
        [
            no("Softmax is not supported by this ANE architecture", "h12"),
            no("OutputType is UInt8; it must be one of Float16, Float32", fields={"OutputType": "UInt8"}),
            no("parameter Dimension is missing", stage="frontend", Dimension=None),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "Sort": (
        SORT,
        [ROW],
        {"OutputType": "UInt16"},
        [
            no(NOT_THERE, "m1", "code generation"),
            no("OutputType is Int8; it must be one of Float16, UInt16", fields={"OutputType": "Int8"}),
            no(ONE_LAYER.format(2, 1), bottoms=[ROW, ROW]),
        ],
    ),
    **{
        tag: (
            {"FactorX": 4, "FactorY": 2},
            [MAP],
            {},
            [
                no("FactorX is 5; it must be a product of 2, 3, 4, 8", FactorX=5, bottoms=[(1, 8, 10, 10)]),
                no("FactorZ is 2; it must be equal to 1", FactorZ=2),
                no("the width of bottom 0 is 15; it must be divisible by FactorX", bottoms=[(1, 8, 16, 15)]),
                no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
            ],
        )
        for tag in ("SpaceToBatch", "SpaceToChannel")
    },
    "Tile": (
        {"Width": 6, "Channel": 16},
        [MAP],
        {},
        [
            no("Width is 7; it must be a product of 2, 3, 4, 8", Width=7),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "TopK": (
        {**RANK, "K": 16},
        [ROW],
        {},
        [
            no("K is 17; it must be at most the width of bottom 0, which is 16", K=17),
            no("K is 0; it must be at least 1", K=0),
            no("k = 3 is refused", stage="code generation", K=3),
            no("k = 4 is refused", stage="code generation", K=4),
            no(
                "ANE TopK can only generate uint16 indices output",
                Indices=True,
                fields={"OutputType": "Float16"},
            ),
            no(NOT_THERE, "m1", "code generation"),
            no(ONE_LAYER.format(2, 1), bottoms=[ROW, ROW]),
        ],
    ),
    "Transpose": (
        {
            "TransposeDimensions": [
                {"TransposeSourceDimension": "Channel", "TransposeDestinationDimension": "Width"},
                {"TransposeSourceDimension": "Width", "TransposeDestinationDimension": "Channel"},
            ]
        },
        [(1, 8, 1, 8388607)],
        {},
        [
            no("an axis of 8388608 exceeds", "m1", bottoms=[(1, 8, 1, 8388608)]),
            no(
                "are no permutation",
                TransposeDimensions=[
                    {"TransposeSourceDimension": "Channel", "TransposeDestinationDimension": "Width"},
                    {"TransposeSourceDimension": "Channel", "TransposeDestinationDimension": "Height"},
                ],
            ),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "Unflatten": (
        None,
        [MAP],
        {},
        [
            no("Unflatten passes its validator on h17 and fails code generation", stage="code generation"),
            no("Unflatten passes its validator on h13 and fails code generation", "m1", "code generation"),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "CostVolume": (
        {"DisparityRange": 4, "DisparityDirection": 0},
        [(1, 1, 1, 16), (1, 1, 1, 20)],
        {},
        [
            no("the width of bottom 1 is 19; it must be at least", bottoms=[(1, 1, 1, 16), (1, 1, 1, 19)]),
            no("DisparityDirection is 1; it must be one of 0", DisparityDirection=1),
            no(ONE_LAYER.format(1, 2), bottoms=[ROW]),
        ],
    ),
    "FurthestPointSampling": (
        {"CentroidCount": 1024},
        [(1, 3, 1, 8192)],
        {},
        [
            no("CentroidCount is 1025; it must be at most 1024", CentroidCount=1025),
            no("the width of bottom 0 is 8193; it must be at most 8192", bottoms=[(1, 3, 1, 8193)]),
            no("the channel of bottom 0 is 4; it must be equal to 3", bottoms=[(1, 4, 1, 64)]),
            no("the height of bottom 0 is 2; it must be equal to 1", bottoms=[(1, 3, 2, 64)]),
            no(ONE_LAYER.format(2, 1), bottoms=[POINTS, POINTS]),
        ],
    ),
    "RadiusSearch": (
        {"Radius": 0.5},
        [POINTS, POINTS],
        {},
        [
            no("the channel of bottom 1 is 2; it must be equal to 3", bottoms=[POINTS, (1, 2, 1, 64)]),
            no("the height of bottom 0 is 2; it must be equal to 1", bottoms=[(1, 3, 2, 64), POINTS]),
            no(ONE_LAYER.format(1, 2), bottoms=[POINTS]),
        ],
    ),
    "KernelRasterizer": (
        {"KernelWidth": 3, "KernelHeight": 3},
        [MAP],
        {"OutputChannels": 8},
        [
            no("only the configuration that changes nothing", stage="code generation", fields={"OutputChannels": 72}),
            no(ONE_LAYER.format(2, 1), bottoms=[MAP, MAP]),
        ],
    ),
    "MatrixDecomposition": (
        None,
        [MAP],
        {},
        [no("is not available on h17 by the direct route", stage="frontend"), no("2 bottoms", bottoms=[MAP, MAP])],
    ),
    "NeuronCustom": (
        None,
        [MAP],
        {},
        [no("is not available on h17 by the direct route", stage="frontend"), no("2 bottoms", bottoms=[MAP, MAP])],
    ),
}
REJECTS = [(tag, case) for tag, (_, _, _, cases) in CASES.items() for case in cases]


def test_every_type_has_a_case():
    assert set(CASES) == {layer.tag for layer in layer_types()}
    assert sum(layer.validator is not None for layer in layer_types()) == 50


@pytest.mark.parametrize("tag", [tag for tag, case in CASES.items() if case[0] is not None])
def test_a_layer_at_the_boundary_is_accepted(tag):
    params, bottoms, fields, _ = CASES[tag]
    chip = "m1" if tag in ("Conv", "CrossCorrelation") else "m5"  # whose kernels are the smallest
    verdict = validate_layer(tag, params, bottoms, chip, fields=fields)
    assert verdict.accepted, str(verdict)
    assert (verdict.message, verdict.route, verdict.layer) == ("", "direct", tag)
    assert verdict.stage in ("validator", "measured run")
    assert not [finding for finding in verdict.findings if finding.effect == "reject"]


@pytest.mark.parametrize(("tag", "case"), REJECTS, ids=[f"{tag}: {case[0][:50]}" for tag, case in REJECTS])
def test_one_step_beyond_is_rejected(tag, case):
    message, chip, stage, bottoms, route, fields, more, changes = case
    params, good, stated, _ = CASES[tag]
    merged = {key: value for key, value in {**(params or {}), **changes}.items() if value is not None}
    verdict = validate_layer(
        tag, merged, good if bottoms is None else bottoms, chip, route, fields={**stated, **fields}, **more
    )
    assert not verdict.accepted, str(verdict)
    told = {verdict.message, *(finding.string or finding.message for finding in verdict.findings)}
    assert any(text == message or (message in text and '"' not in message) for text in told), told
    stages = {finding.stage for finding in verdict.findings if finding.effect == "reject"} or {verdict.stage}
    assert stage in stages, stages
    assert verdict.stage == min(stages, key=STAGES.index)
    assert not re.search(r"%z?[sdu]|\{\w*\}", verdict.message + verdict.reason)
    assert verdict.evidence.confidence != "unknown"
    assert message in str(verdict) or message in verdict.reason or len(stages) > 1 or len(told) > 1


def published_strings():
    return {string for layer in layer_types() for string in layer.reject_strings}


def test_every_string_of_a_record_is_a_published_one():
    """The places of the vendor's strings are filled in, and nothing else is changed."""
    ours = {record["string"] for record in validator_records() if "string" in record} - {"ANECCompile() FAILED"}
    patterns = [
        re.compile(re.sub(r"%z?[sdu]", r"(.+)", re.escape(text).replace("\\%", "%"))) for text in published_strings()
    ]
    for string in ours:
        assert any(pattern.fullmatch(string) for pattern in patterns), string


UNSAID = {
    "SDPA layer must have only 4 or 5(optional mask) inputs": "a second wording of the count",
    "both concat inputs must have the same layout": "a layer has no layout: interleaves belong to ports",
    "Codegen Error: Invalid Texture CropCfg": "code generation (gate_limits.json CropResize)",
    "Invalid conv kernel %s = %zd, It should be in [%zd,%zd]": "conv-kernel-width and -height (gate_limits.json)",
    "Cannot decompose layer on this architecture": "gather-envelope (gate_limits.json)",
    "Circular buffer is not supported on this architecture": "an answer by name (gate_limits.json)",
    "NE Input Transpose is not supported for this arch": "one engine's; the compiler has other ways to transpose",
}


def test_every_published_string_is_said_or_explained():
    patterns = {text: re.compile(re.sub(r"%z?[sdu]", r"(.+)", re.escape(text))) for text in published_strings()}
    said = {record["string"] for record in validator_records() if "string" in record}
    silent = {text for text, pattern in patterns.items() if not any(pattern.fullmatch(string) for string in said)}
    assert silent == set(UNSAID)


def test_every_check_of_the_validators_refuses_something():
    """Each rule of the validators is met by a case above."""
    met = set()
    for tag, (_, chip, _, bottoms, route, fields, more, changes) in REJECTS:
        params, good, stated, _ = CASES[tag]
        merged = {key: value for key, value in {**(params or {}), **changes}.items() if value is not None}
        verdict = validate_layer(
            tag, merged, good if bottoms is None else bottoms, chip, route, fields={**stated, **fields}, **more
        )
        met |= {finding.rule for finding in verdict.findings}
    unmet = {name for name, rule in RULES.items() if rule.validates} - met
    assert unmet == {"axis-set", "pool-mode"}  # a parser refuses both first; a compile can meet them


def test_what_a_parser_refuses_a_compile_meets_in_the_rules():
    m5 = af.target("m5")
    assert judge(Query("Softmax", (MAP,), attrs={"Dimension": ()}), m5, "direct").findings[0].rule == "axis-set"
    words = judge(Query("Pooling", (MAP,), attrs={"Type": "Min"}), m5, "conversion").findings
    assert 'Pooling mode "Min" is not available on this ANE architecture.' in {finding.string for finding in words}


def test_every_constraint_is_checked_or_says_why_not():
    """A layer whose only check is its count of bottoms has no other constraint left."""
    for entry in store.load("validators")["validators"]:
        layer = layer_type(entry["layer"])
        left = set(layer.constraints) - set(entry.get("unchecked", ()))
        checked = [check for check in entry["checks"] if check["check"] != "bottom-count"]
        rules = {name for name, rule in RULES.items() if {layer.tag, layer.name} & set(rule.ops)}
        named = any(record["op"] in (layer.tag, layer.name) for record in store.load("gate_limits")["ops"])
        listed = any(param.values for param in layer.params.values())
        reached = op_routes(layer.name).route("direct")
        never = reached is not None and all(status.value == "reject" for status in reached.values())
        assert not left or checked or rules or named or listed or never, (entry["layer"], left)
        assert all(entry.get("unchecked", {}).values())


# Stages.


def test_every_record_and_finding_has_a_stage():
    for records in rule_records().values():
        assert all(record["stage"] in STAGES for record in records)
    finding = judge(Query("TopK", (ROW,), attrs={"K": 3}), af.target("m5"), "direct").findings[0]
    assert finding.to_json()["stage"] == "code generation"
    assert finding.to_json()["route"] == "direct"


@pytest.mark.parametrize(
    ("tag", "chip", "route", "accepted", "stage"),
    [
        ("GlobalArgMinMax", "m1", "conversion", False, "frontend"),
        ("GlobalArgMinMax", "m1", "direct", True, "validator"),
        ("GlobalArgMinMax", "m3", "conversion", True, "validator"),
        ("TopK", "m1", "direct", False, "code generation"),
        ("TopK", "m1", "conversion", False, "frontend"),
        ("TopK", "m2", "direct", True, "measured run"),
        ("Sort", "m1", "direct", False, "code generation"),
        ("Sort", "m2", "direct", True, "measured run"),
        ("DynamicSlice", "m1", "direct", False, "code generation"),
        ("Neuron", "m1", "direct", False, "validator"),
        ("CostVolume", "m1", "direct", True, "measured run"),
        ("SDPA", "m1", "direct", True, "validator"),
    ],
)
def test_both_routes(tag, chip, route, accepted, stage):
    """Chapter 26, two compile routes and their gates; how far an accept is attested is in the data."""
    params, bottoms, fields, _ = CASES[tag]
    verdict = validate_layer(tag, params, bottoms, chip, route, fields=fields)
    assert (verdict.accepted, verdict.stage, verdict.route) == (accepted, stage, route), str(verdict)


def test_sine_by_conversion_only():
    """Chapter 26: sine has no bridge, so a chip that has it by conversion gets another form on the direct route."""
    wave = af.input((1, 8, 4, 4)).sin()
    assert af.preflight(wave, "m5").native[0].stage == "measured run"
    assert af.preflight(wave, "m5", "direct").decompose[0].rewrite == "sin-horner"


def test_check_shows_stage_and_route():
    report = af.preflight(af.topk(af.input((4, 16)), 5), "m1")
    record = report.reject[0].to_json()
    assert (record["stage"], record["route"]) == ("code generation", "direct")
    text = str(af.check(af.topk(af.input((4, 16)), 5), "m1"))
    assert "on: M1, at code generation by the direct route" in text


def test_a_warning_is_no_reject():
    verdict = validate_layer("SDPA", {}, CASES["SDPA"][1], "m1")
    assert verdict.accepted
    assert [finding.rule for finding in verdict.findings] == ["sdpa-subtract-max"]
    assert "warning: SDPA: SubtractMax is off" in str(verdict)
    assert verdict.to_json()["findings"][0]["effect"] == "wrong_result"


# The tables of the seed documents.


def test_table_22_4():
    """The five exports that are not about one layer."""
    rows = {row["name"]: row["role"] for row in store.load("layers")["non_layer_exports"]}
    assert set(EXPORTS) == set(rows)
    import aneforge.validate as home

    assert all(callable(getattr(home, name)) for name in EXPORTS.values())


TABLE_22_5 = {
    "softmax": ("Softmax", {}, "h12", "m1"),
    "instance_norm": ("InstanceNormalization", {}, "h12", "m1"),
    "dropout": ("Dropout", {}, "m2", "m3"),
    "random": ("RandomGenerator", {}, "m2", "m3"),
    "affine": ("AffineTransform", {}, "m1", "m2"),
    "resize": ("Resize", {}, "m1", "m2"),
    "resample": ("Resample", {}, "m1", "m2"),
    "padding_mode": ("Padding", {"PaddingMode": "Reflective"}, "m1", None),
    "dynamic_goc": ("DynamicGOC", {}, None, "m1"),
    "conv3d": ("Conv", {"KernelDepth": 3}, "m5", None),
}


@pytest.mark.parametrize("op", [op for row in seed.TABLE_22_5 for op in row["ops"]])
def test_table_22_5(op):
    row = next(row for row in seed.TABLE_22_5 if op in row["ops"])
    tag, more, refusing, taking = TABLE_22_5[op]
    params, bottoms, fields, _ = CASES[tag]
    params = {**(params or {}), **more}
    if refusing is not None:
        verdict = validate_layer(tag, params, bottoms, refusing, fields=fields)
        assert not verdict.accepted
        assert verdict.stage == ("code generation" if op == "conv3d" else "validator")
        if row["byte"] is not None:
            assert f"{row['byte']:#x}" in " ".join(finding.message for finding in verdict.findings)
    if taking is not None:
        assert validate_layer(tag, params, bottoms, taking, fields=fields).accepted


LAYERS_26_1 = {
    "sdpa": "SDPA",
    "topk": "TopK",
    "sort": "Sort",
    "arg_min_max": "ArgMinMax",
    "global_arg_min_max": "GlobalArgMinMax",
    "pixel_shuffle": "PixelShuffle",
    "pixel_unshuffle": "PixelUnshuffle",
    "space_to_channel": "SpaceToChannel",
    "channel_to_space": "ChannelToSpace",
    "space_to_batch": "SpaceToBatch",
    "batch_to_space": "BatchToSpace",
    "minmax_norm": "MinMaxNormalization",
    "lrn": "LocalResponseNormalization",
    "gain_offset_control": "GOC",
    "cross_correlation": "CrossCorrelation",
    "cross_product": "CrossProduct",
    "furthest_point_sampling": "FurthestPointSampling",
    "radius_search": "RadiusSearch",
    "cost_volume": "CostVolume",
    "resize_hw": "Resize",
    "resample": "Resample",
    "affine": "AffineTransform",
    "input_view": "InputView",
    "dynamic_slice": "DynamicSlice",
    "tile": "Tile",
    "concat": "Concat",
}
NO_LAYER = {"crop_resize", "state", "ring_buffer_reader", "tensor_to_tensor_buffer", "tensor_buffer_to_tensor"}
"""CropResize fails code generation everywhere (C12); the others are no layers of a netplist."""


def test_table_26_1_is_covered():
    listed = {layer for row in seed.TABLE_26_1 for layer in row["layers"]}
    assert listed - set(LAYERS_26_1) - NO_LAYER <= {"ring_buffer_writer"}


@pytest.mark.parametrize("op", LAYERS_26_1)
def test_table_26_1(op):
    """The first family of each layer by direct authoring: the one before it refuses."""
    row = next(row for row in seed.TABLE_26_1 if op in row["layers"])
    told = row["first_family"].get(op, "A14" if op == "dynamic_slice" else "A13")
    if ("26.1", row["class"], "first_family", op) in seed.OVERRIDDEN:
        told = "A13"
    first = "m2" if told in (">A13", "A14") else "m1"
    params, bottoms, fields, _ = CASES[LAYERS_26_1[op]]
    assert validate_layer(LAYERS_26_1[op], params, bottoms, first, fields=fields).accepted
    if first == "m2":
        assert not validate_layer(LAYERS_26_1[op], params, bottoms, "m1", fields=fields).accepted


@pytest.mark.parametrize(
    ("atom", "tag", "broken"),
    [
        ("sdpa", "SDPA", {"bottoms": [HEADS, HEADS, (1, 8, 196, 64), (1, 1, 1, 1)]}),
        ("matmul", "MatrixMultiplication", {"bottoms": [(1, 8, 2, 1, 16), (1, 16, 1, 4)]}),
        ("gain_offset_control", "DynamicGOC", {"bottoms": [MAP, (1, 8, 4, 1), (1, 8, 1, 1)]}),
        ("layer_norm", "LayerNormalization", {"params": {"NumGroups": 5}}),
    ],
)
def test_table_26_2(atom, tag, broken):
    assert atom in {row["atom"] for row in store.load("layers")["atoms_table_26_2"]}
    params, bottoms, fields, _ = CASES[tag]
    assert validate_layer(tag, params, bottoms, "m1", fields=fields).accepted
    assert not validate_layer(tag, broken.get("params", params), broken.get("bottoms", bottoms), "m1").accepted


# Bad questions.


def test_bad_questions():
    with pytest.raises(UnknownNameError, match="not a type of native layer"):
        validate_layer("TopQ", {}, [], "m1")
    with pytest.raises(ArgumentError, match="not a route"):
        validate_layer("TopK", RANK, [ROW], "m1", "sideways")
    for bottoms in ("x", [3], [(1, "a")], [(1, -2)], [[]], 5):
        with pytest.raises(ArgumentError, match="bottoms"):
            validate_layer("TopK", RANK, bottoms, "m1")
    with pytest.raises(ArgumentError, match="params"):
        validate_layer("TopK", [], [ROW], "m1")
    with pytest.raises(ArgumentError, match="dtypes"):
        validate_layer("TopK", RANK, [ROW], "m1", dtypes=["fp16", "fp16"])
    wrong = validate_layer("TopK", {**RANK, "K": "five"}, [ROW], "m5")
    assert (wrong.accepted, wrong.stage) == (False, "frontend")
    assert "InvalidParamSyntax" in wrong.message


@pytest.mark.parametrize("seed_", range(4))
def test_any_question_gets_an_answer_or_one_line(seed_):
    rng = np.random.default_rng(seed_)
    values = (0, 1, -1, 3, 2.5, True, "Width", "Max", None, [], [1, 2], [{}], [{"Dimension": "Depth", "Size": 2}], {})
    for layer in layer_types():
        keys = [*layer.params, "Rate", "PaddingSizes", "Low", "Dimension", "NumGroups"]
        for _ in range(8):
            params = {str(rng.choice(keys)): values[rng.integers(len(values))] for _ in range(rng.integers(0, 5))}
            known, good, _, _ = CASES[layer.tag]
            drawn = [tuple(map(int, rng.integers(0, 9, rng.integers(1, 7)))) for _ in range(rng.integers(0, 6))]
            answer = asked(layer.tag, {**(known or {}), **params}, good if rng.integers(2) else drawn)
            assert answer
            assert "\n" not in answer


def asked(tag, params, bottoms):
    """The message of a verdict, or of the error that says what is wrong with the question."""
    try:
        verdict = validate_layer(tag, params, bottoms, "m1")
    except af.AneforgeError as error:
        return str(error)
    assert json.dumps(verdict.to_json(), default=str)
    return "accepted" if verdict.accepted else verdict.message


def test_bottoms_may_be_tensors():
    x = af.input((1, 4, 1, 16))
    assert validate_layer("TopK", RANK, [x], "m5").accepted
    small = validate_layer("CrossProduct", {}, [af.input((1, 3, 1, 1), dtype="uint8")] * 2, "m5")
    assert "uint8" in small.message


# One answer: the validators and a compile.


def native_layers(rng):
    """A native layer as a tensor, and the question about it."""
    n = int(rng.integers(1, 20))
    k = int(rng.integers(1, 8))
    c = int(rng.integers(1, 20))
    r = int(rng.integers(1, 7))
    rows = af.input((4, 16))
    image = af.input((1, c, 4 * r, 4 * r))
    heads = [af.input((1, 2, 8, 16)) for _ in range(3)]
    wide = 2040 + n
    return [
        (af.topk(rows, k), "TopK", {**RANK, "K": k}, [(1, 4, 1, 16)]),
        (af.sort(rows), "Sort", SORT, [(1, 4, 1, 16)]),
        (af.lrn(image), "LRN", {**LRN, "KernelChannel": c, "Alpha": 1e-4}, [image.shape]),
        (af.space_to_channel(image, r), "SpaceToChannel", {"FactorX": r, "FactorY": r}, [image.shape]),
        (
            af.minmax_norm(image, ("Width", "Height", "Channel")[r % 3]),
            "MinMaxNorm",
            {"Dimension": ("Width", "Height", "Channel")[r % 3], "Epsilon": 1e-3},
            [image.shape],
        ),
        (af.sdpa(*heads), "SDPA", {"SubtractMax": True}, [*(each.shape for each in heads), (1, 1, 1, 1)]),
        (
            af.input((4, wide)).argmax(1),
            "ArgMinMax",
            {"Mode": "SpatialArgMax", "KernelWidth": wide, "KernelHeight": 1},
            [(1, 4, 1, wide)],
        ),
        (af.fps(af.input((64, 3)), k), "FurthestPointSampling", {"CentroidCount": k}, [(1, 3, 1, 64)]),
        (
            af.scaled_elementwise(image, image, "Add", 0.5),
            "ScaledElementWise",
            {"Type": "Add", "Scale": 0.5},
            [image.shape] * 2,
        ),
    ]


@pytest.mark.parametrize("seed_", range(6))
def test_a_validator_says_what_a_compile_does(seed_):
    chips = ("h13", "h14g", "h15", "h16g", "h17s", "h18g", "u1")
    for tensor, tag, params, bottoms in native_layers(np.random.default_rng(seed_)):
        compiled = af.compile_all(tensor, chips, route="direct")
        for chip in chips:
            verdict = validate_layer(tag, params, bottoms, chip)
            refused = compiled.refused.get(chip)
            assert verdict.accepted == (refused is None), (tag, params, bottoms, chip, str(verdict), str(refused))
            if refused is not None:
                first = refused.refusals[0].findings[0]
                assert (first.stage, first.string or first.message) == (verdict.stage, verdict.message)


def test_a_compile_quotes_the_filled_in_string():
    with pytest.raises(CompileError) as caught:
        af.compile(af.affine(af.input((1, 8, 32, 32)), np.zeros((1, 6)), 16, 16), target="m1", route="direct")
    assert caught.value.reject == "affine transform is not supported on this architecture"
    assert caught.value.refusals[0].findings[0].stage == "validator"


# Networks.


def network():
    q = af.input((1, 2, 8, 16), name="q")
    best = af.topk(af.input((4, 16), name="scores"), 5).named("best")
    return [af.sdpa(q, q, q).named("attn"), best, q.relu().named("act")]


def test_a_network_layer_by_layer():
    verdict = validate_network(network(), "m1")
    assert not verdict.accepted
    assert [row.name for row in verdict.rejected] == ["best"]
    assert verdict.stage == "code generation"
    assert {row.name: row.accepted for row in verdict.rows} == {"attn": True, "best": False, "act": True}
    assert {"SDPA"} <= {layer for row in verdict.rows for layer in row.layers}
    assert validate_network(network(), "m2").accepted
    assert json.dumps(verdict.to_json())


def test_a_module_meets_the_floor_first():
    wave = af.input((1, 8, 4, 4)).sin().named("wave")
    verdict = validate_module(wave, "m1")
    assert verdict.route == "conversion"
    assert verdict.accepted  # rewritten by this compiler
    assert "rewritten" in verdict.rows[0].reason
    old = validate_module(af.input((1, 8, 4, 4)).relu(), "h12")
    assert (old.accepted, old.stage) == (False, "frontend")


def test_bonded_networks():
    """U93."""
    relu = af.input((1, 8, 4, 4)).relu()
    words = "Bonded networks are not supported on the target"
    assert validate_network(relu, "m1", bonded=True).message == words
    assert validate_network(relu, "h18g", bonded=True).accepted


def test_a_netplist_that_is_newer_than_the_schema(tmp_path):
    import plistlib

    file = tmp_path / "net.plist"
    file.write_bytes(plistlib.dumps({"Version": "9.0.0", "Networks": ["n"], "ProcedureList": [], "n": {}}))
    verdict = validate_network(file, "m1")
    assert (verdict.accepted, verdict.stage) == (False, "frontend")
    assert "9.0.0" in verdict.message


def test_a_procedure_that_edits_weights():
    kernel = np.ones((8, 8, 1, 1), np.float16)
    y = af.conv(af.input((1, 8, 4, 4)), af.const(kernel, name="stored"))
    assert not validate_mutable_procedure(y, {"stored": kernel}).accepted
    assert validate_mutable_procedure(y, {"stored": kernel}, mutable=["stored"]).accepted
    trained = af.conv(af.input((1, 8, 4, 4)), af.parameter(kernel, name="trained"))
    assert validate_mutable_procedure(trained, {"trained": kernel}).accepted
    wrong = {"trained": kernel[:4], "missing": kernel}
    told = [str(problem) for problem in validate_mutable_procedure(trained, wrong).problems]
    assert "shape [4, 8, 1, 1]; expected [8, 8, 1, 1]" in told[0]
    assert "no stored weight of this name" in told[1]
    assert "float32" in str(validate_mutable_procedure(trained, {"trained": kernel.astype(np.float32)}))
    with pytest.raises(ArgumentError):
        validate_mutable_procedure(trained, [kernel])


# Programs.


@pytest.fixture(scope="module")
def program():
    x, image = af.input((1, 8, 16, 16), name="x"), af.input((1, 4, 8, 8), dtype="uint8", name="image")
    y = af.conv(x, np.ones((8, 8, 3, 3)), pad=1).relu()
    heads = [af.input((1, 2, 8, 16)) for _ in range(3)]
    outputs = [af.conv(y, np.ones((16, 8, 1, 1))) + 1.0, af.sdpa(*heads), af.cast(image).softmax(3).relu()]
    return af.compile_all(outputs, "m1")["m1"]


def test_a_compiled_program_is_sound(program):
    verdict = validate_program(program)
    assert verdict.accepted, str(verdict)
    assert verdict.checked["buffers"] > 5
    assert verdict.checked["weights"] >= 3


def changed(view, part, number, **fields):
    items = list(getattr(view, part))
    items[number] = replace(items[number], **fields)
    return replace(view, **{part: tuple(items)})


def first(view, **wanted):
    return next(
        number
        for number, stretch in enumerate(view.stretches)
        if all(getattr(stretch, key) == value for key, value in wanted.items())
    )


MUTATIONS = {
    "an address outside on-chip memory": (
        lambda v: changed(v, "stretches", first(v, section="l2"), address=v.sections["l2"].bytes),
        "addresses",
    ),
    "a negative address": (lambda v: changed(v, "stretches", first(v, section="dram"), address=-16), "addresses"),
    "an address that is not aligned": (
        lambda v: changed(v, "stretches", first(v, section="dram"), address=3),
        "addresses",
    ),
    "a section that is not there": (lambda v: changed(v, "stretches", 0, section="tape"), "addresses"),
    "two buffers at one place": (
        lambda v: changed(v, "stretches", first(v, address=512, section="dram"), address=0),
        "overlaps",
    ),
    "a stride below a row": (lambda v: changed(v, "stretches", 0, row_stride=8), "strides"),
    "a buffer below its rows": (lambda v: changed(v, "stretches", 0, bytes=64), "strides"),
    "a port of another type": (lambda v: changed(v, "ports", 0, dtype="f64"), "ports and planes"),
    "two planes without an image": (lambda v: changed(v, "ports", 0, planes=2), "ports and planes"),
    "one plane of an image of two": (lambda v: changed(v, "ports", 0, image="&8f0"), "ports and planes"),
    "an image format that nobody knows": (lambda v: changed(v, "ports", 0, image="&QQQ"), "ports and planes"),
    "a weight behind the section": (lambda v: changed(v, "stored", 0, address=1 << 20), "weights"),
    "a weight that is not aligned": (lambda v: changed(v, "stored", -1, address=1), "weights"),
    "a dense weight of half its bytes": (
        lambda v: changed(v, "stored", 0, bytes=v.stored[0].bytes // 2),
        "weights",
    ),
    "a compressed weight larger than fp16": (
        lambda v: changed(v, "stored", 0, encoding="lut4", bytes=8 * v.stored[0].bytes),
        "weights",
    ),
    "a weight that is not stored": (lambda v: changed(v, "tasks", 0, weights=("gone",)), "references"),
    "a task before what it reads": (lambda v: changed(v, "tasks", 1, reads=(len(v.tasks) - 1,)), "order of tasks"),
    "a task that reads nothing known": (lambda v: changed(v, "tasks", 0, reads=(999,)), "order of tasks"),
    "a port that is not there": (lambda v: changed(v, "tasks", 0, reads=("nowhere",)), "order of tasks"),
}


@pytest.mark.parametrize("what", MUTATIONS)
def test_a_damaged_program_is_refused(program, what):
    damage, check = MUTATIONS[what]
    verdict = validate_program(damage(program_view(program)))
    assert check in {fault.check for fault in verdict.faults}, str(verdict)
    assert str(verdict).count("\n") >= 1
    assert json.dumps(verdict.to_json())


def test_images_of_two_planes_and_compressed_weights_are_sound(program):
    view = program_view(program)
    view = changed(view, "ports", 1, image="&8f0", planes=2)
    view = changed(view, "stored", 0, encoding="lut4", bytes=view.stored[0].bytes // 4)
    assert validate_program(view).accepted


def test_every_check_of_the_loader_has_a_mutation():
    assert {check for _, check in MUTATIONS.values()} == set(loader._CHECKS)


# The command.


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def command(*words):
        from typer.testing import CliRunner

        result = CliRunner().invoke(app, ["validate", *words])
        return result.exit_code, result.output, result.exception

    return command


def saved(tmp_path):
    file = tmp_path / "net.aneforge"
    af.Graph.of(network()).save(file)
    return str(file)


def test_the_command_prints_a_matrix(run, tmp_path):
    status, text, _ = run(saved(tmp_path), "--target", "m1,m2")
    assert status == 1
    assert "TopK passes its validator on M1 and fails code generation" in text
    assert "rejected on: M1" in text
    assert run(saved(tmp_path), "--target", "m2")[0] == 0


def test_the_command_as_json(run, tmp_path):
    status, text, _ = run(saved(tmp_path), "--target", "all", "--json")
    record = json.loads(text)
    assert (status, record["ok"], len(record["targets"])) == (1, False, 28)
    rows = {row["name"]: row for row in record["targets"]["h13"]["rows"]}
    assert rows["best"]["stage"] == "code generation"
    assert rows["attn"]["accepted"]


def test_the_command_for_one_layer(run):
    params = json.dumps({**RANK, "K": 3})
    status, text, _ = run("TopK", "--params", params, "--shapes", "1x4x1x16", "--target", "m5")
    assert status == 1
    assert "k = 3 is refused" in text
    good = json.dumps(RANK)
    assert run("TopK", "--params", good, "--shapes", "1x4x1x16", "--target", "m2,m5")[0] == 0
    status, text, _ = run("Softmax", "--params", '{"Dimension": "Width"}', "--shapes", "1x4x1x16", "--json")
    assert json.loads(text)["targets"]["m1"]["accepted"]


def test_bad_input_of_the_command(run, tmp_path):
    for words in (
        ("missing.onnx",),
        ("TopK", "--params", "{"),
        ("TopK", "--params", "[]"),
        ("TopK", "--shapes", "1xtwo"),
        (saved(tmp_path), "--shapes", "1x2"),
        (saved(tmp_path), "--route", "sideways"),
    ):
        status, _, error = run(*words)
        assert status != 0
        assert isinstance(error, af.errors.AneforgeError), words


def test_layers_are_found_by_name_and_tag():
    assert layer_type("LRN") is layer_type("LocalResponseNormalization")
    chips = validate_all(network(), "m1,m2")
    assert (chips["m1"].accepted, chips["m2"].accepted, chips.ok) == (False, True, False)
