"""The layers of the validators' tests: what a chip accepts at the boundary, and what it rejects one step beyond."""

from __future__ import annotations

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
            no("affine transform is not supported on this architecture", "m1"),
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
        [no(ONE_LAYER.format(3, 1), bottoms=[MAP, MAP, MAP])],
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
        {"Type": "Sqrt"},
        [MAP],
        {},
        [
            no("This platform doesn't support Neuron Sqrt", "h12"),
            no("This platform doesn't support Neuron Sin", "m1", Type="Sin"),
            no("This platform doesn't support Neuron Cos", "m2", Type="Cos"),
            no("the function Sin cannot be authored on any chip; only conversion has it", Type="Sin"),
            no("the function Cos cannot be authored on any chip; only conversion has it", "m3", Type="Cos"),
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
            no("affine transform is not supported on this architecture", "m1"),
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
