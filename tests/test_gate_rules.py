"""Every rule of the gate on both sides of its boundary, with the source that set the boundary."""

from __future__ import annotations

import pytest

from aneforge import target
from aneforge.chips import sources, store
from aneforge.compiler.legal.judge import judge
from aneforge.compiler.legal.query import ALL_RUNTIMES, RUNTIMES, SYMBOLIC, Query
from aneforge.compiler.legal.rules import RULES
from aneforge.compiler.legal.rules.base import STAGES, rule_records
from aneforge.compiler.legal.rules.programs import estimate_us, placed
from aneforge.compiler.legal.rules.status import known_names
from aneforge.errors import AneforgeError

X = ((1, 8, 64, 64),)
MAP = ((1, 64, 32, 32),)
ROW = ((1, 64, 1, 1024),)


def conv(*kernel, shape=X, out=8, **attrs):
    return Query("conv", shape, {"weight": (out, shape[0][1], *kernel)}, attrs)


def pool(op, *window):
    return Query(op, MAP, attrs={"kernel_sizes": list(window), "pad_type": "same"})


def norm(rows, width, gamma_uniform=False, **attrs):
    return Query("layer_norm", ((rows, width),), attrs=attrs, weights={"gamma_uniform": gamma_uniform})


def sdpa(queries, keys, mask=None, **attrs):
    shapes = ((1, 8, queries, 64), (1, 8, keys, 64), (1, 8, keys, 64), (1, 1, 1, 1), *((mask,) if mask else ()))
    return Query("SDPA", shapes, attrs=attrs)


def chain(name, *patterns, shape=ROW, **attrs):
    return Query(f"chain:{name}", shape, attrs=attrs, patterns=frozenset(patterns))


def cut(largest, begin, op="slice_by_size"):
    return Query(op, ((1, 1, 1, 8),), attrs={"begin": begin}, values={"max_abs": largest})


def layer(op, *shapes, **attrs):
    return Query(op, shapes or None, attrs=attrs)


W8 = {"encoding": "int8"}
FEW = frozenset(("attention-of-few-queries",))

# "rule | chip | route | verdict on the far side | source", a query that passes, a query that does not
BOUNDARIES = [
    (
        "attention-history | M5 Pro | conversion | reject | FRG2",
        Query("chain:attention_history", ((4, 48, 256),), attrs={"history": 24576}, runtime="coreai"),
        Query("chain:attention_history", ((4, 48, 256),), attrs={"history": 32768}, runtime="coreai"),
    ),
    (
        "joined-by-padding | M5 Max | conversion | reject | QWA",
        Query("chain:add", attrs={"padded_channels": 9216}, patterns=frozenset(("padded-values-added",))),
        Query("chain:add", attrs={"padded_channels": 11264}, patterns=frozenset(("padded-values-added",))),
    ),
    (
        "fp8-form | M6 | conversion | reject | FTC",
        Query("conv", weights={"encoding": "fp8e4m3"}),
        Query("conv", weights={"encoding": "fp8e4m3", "zero_point": True}),
    ),
    (
        "run-time-dequantise | M6 | conversion | reject | FRG2",
        Query("conv", weights={"encoding": "int8"}, runtime="coreai"),
        Query("conv", weights={"encoding": "int8", "dequantize": "runtime"}, runtime="coreai"),
    ),
    (
        "fp8-underflow | M6 | conversion | wrong_result | FTC",
        Query("conv", weights={"encoding": "fp8e4m3"}, values={"max_abs": 0.5}),
        Query("conv", weights={"encoding": "fp8e4m3"}, values={"max_abs": 0.03125}),
    ),
    ("rank | M1 | conversion | reject | G04", Query("relu", ((1, 1, 2, 4, 64),)), Query("relu", ((1,) * 6,))),
    (
        "matmul-rank | M1 | conversion | reject | G04",
        Query("matmul", ((1, 2, 8, 16), (1, 2, 16, 8))),
        Query("matmul", ((1, 1, 2, 8, 16), (1, 1, 2, 16, 8))),
    ),
    (
        "symbolic-dimension | M1 | conversion | reject | G19",
        Query("relu", ((8, 64),)),
        Query("relu", ((SYMBOLIC, 64),)),
    ),
    ("zero-size | M1 | conversion | reject | G04", Query("relu", ((1, 64),)), Query("relu", ((0, 64),))),
    (
        "zero-size | M5 | conversion | reject | G04",
        Query("slice_by_size", ((1, 48, 1, 32),), attrs={"size": (1, 48, 1, 1)}),
        Query("slice_by_size", ((1, 48, 1, 32),), attrs={"size": (1, 48, 1, 0)}),
    ),
    (
        "zero-size | M5 | conversion | reject | G04",
        Query("slice_by_index", ((1, 48, 1, 32),), attrs={"begin": (0, 0, 0, 3), "end": (1, 48, 1, 4)}),
        Query("slice_by_index", ((1, 48, 1, 32),), attrs={"begin": (0, 0, 0, 4), "end": (1, 48, 1, 4)}),
    ),
    (
        "output-channels | M5 Max | conversion | reject | G17",
        Query("conv", ((1, 64, 1, 32),), {"weight": (65536, 64, 1, 1)}),
        Query("conv", ((1, 64, 1, 32),), {"weight": (65537, 64, 1, 1)}),
    ),
    ("extent | M1 | conversion | reject | G17", Query("add", ((1, 1, 1, 16384),)), Query("add", ((1, 1, 1, 16385),))),
    (
        "extent | M2 Pro | conversion | reject | G17",
        Query("add", ((1, 65536, 1, 1),)),
        Query("add", ((1, 65537, 1, 1),)),
    ),
    (
        "extent | M4 | coreml_placement | cpu | M6.disp",
        Query("relu", ((1, 1, 65536, 1),)),
        Query("relu", ((1, 1, 65537, 1),)),
    ),
    (
        "extent | M2 | coreml_placement | reject | MOB.61",
        chain("conv", shape=((1, 128, 1, 16384),)),
        chain("conv", shape=((1, 128, 1, 16390),)),
    ),
    (
        "contraction-extent | M1 | conversion | reject | G04",
        Query("matmul", ((8, 8),), {"y": (8, 16384)}),
        Query("matmul", ((8, 8),), {"y": (8, 16385)}),
    ),
    (
        "matmul-runtime-contraction | M4 | conversion | reject | M6.disp",
        Query("matmul", ((1, 16, 32768), (1, 32768, 16))),
        Query("matmul", ((1, 16, 40000), (1, 40000, 16))),
    ),
    (
        "matmul-row | M5 | direct | reject | S22",
        Query("matmul", ((8, 32768),), {"y": (32768, 8)}),
        Query("matmul", ((8, 32769),), {"y": (32769, 8)}),
    ),
    (
        "group-norm-extent | M1 | conversion | reject | AF.quirks",
        Query("group_norm", ((1, 512, 128, 128),), attrs={"num_groups": 32}),
        Query("group_norm", ((1, 512, 128, 129),), attrs={"num_groups": 32}),
    ),
    (
        "group-norm-extent | M5 | conversion | reject | AF.caps",
        Query("group_norm", ((1, 512, 8, 8),), attrs={"num_groups": 32, "form": "flattened"}),
        Query("group_norm", ((1, 512, 128, 128),), attrs={"num_groups": 32, "form": "flattened"}),
    ),
    (
        "narrow-surface | M3 Max | conversion | wrong_result | FG",
        Query("mul", ((1, 80, 1, 32),)),
        Query("mul", ((1, 80, 1, 31),)),
    ),
    (
        "short-step | M5 Pro | conversion | reject | SCOPE",
        chain("decoder_step", shape=((1, 2560, 1, 4),)),
        chain("decoder_step", shape=((1, 2560, 1, 1),)),
    ),
    (
        "short-step | M4 Max | conversion | reject | ORI",
        chain("decoder_step", shape=((1, 768, 1, 16),)),
        chain("decoder_step", shape=((1, 768, 1, 1),)),
    ),
    ("conv-kernel-width | M1 | conversion | reject | C16", conv(1, 13), conv(1, 14)),
    ("conv-kernel-width | M6 | coreml_placement | cpu | C16", conv(1, 15), conv(1, 16)),
    ("conv-kernel-width | M4 | coreml_placement | cpu | M6.disp", conv(16, 16), conv(17, 17)),
    (
        "conv-kernel-width | M5 | direct | reject | AF.caps",
        Query("CrossCorrelation", X, {"template": (1, 1, 1, 15)}),
        Query("CrossCorrelation", X, {"template": (1, 1, 1, 16)}),
    ),
    ("conv-kernel-height | M1 | conversion | reject | G17", conv(29, 1), conv(30, 1)),
    ("conv-kernel-height | M4 | conversion | reject | M6.disp", conv(28, 1), conv(32, 1)),
    (
        "conv-channels-per-group | M1 | conversion | reject | G04",
        Query("conv", X, {"weight": (8, 2, 3, 3)}, {"groups": 4}),
        Query("conv", X, {"weight": (9, 2, 3, 3)}, {"groups": 3}),
    ),
    (
        "conv-stride-factors | M1 | conversion | decompose | G17",
        conv(3, 3, strides=[8, 8]),
        conv(3, 3, strides=[7, 7]),
    ),
    (
        "conv-depth | M1 | conversion | reject | G04",
        conv(3, 3),
        Query("conv", ((1, 16, 8, 16, 16),), {"weight": (16, 16, 3, 3, 3)}),
    ),
    ("conv-dilation | A12 Bionic | coreml_placement | reject | HOLD", conv(3, 3), conv(3, 3, dilations=[2, 2])),
    (
        "deconv-stride | A17 Pro | coreml_placement | reject | CT.2450",
        Query("conv_transpose", ((1, 128, 5, 226),), {"weight": (128, 64, 4, 4)}, {"strides": [4, 4]}),
        Query("conv_transpose", ((1, 128, 5, 226),), {"weight": (128, 64, 16, 1)}, {"strides": [16, 1]}),
    ),
    (
        "runtime-weight-batch | M1 | conversion | reject | G19",
        Query("conv", ((1, 1, 8, 8), (8, 1, 3, 3)), attrs={"weight": "runtime"}),
        Query("conv", ((2, 1, 8, 8), (8, 1, 3, 3)), attrs={"weight": "runtime"}),
    ),
    (
        "runtime-weight-ignored | M3 Max | conversion | wrong_result | FG",
        conv(1, 1),
        Query("conv", ((1, 64, 1, 32), (64, 64, 1, 1)), attrs={"weight": "runtime"}),
    ),
    (
        "kernel-exceeds-input | M1 | conversion | reject | S22",
        conv(9, 1, shape=((1, 8, 9, 9),), pad_type="valid"),
        conv(10, 1, shape=((1, 8, 9, 9),), pad_type="valid"),
    ),
    ("max-pool-width | M4 | conversion | reject | M6.disp", pool("max_pool", 9, 1), pool("max_pool", 1, 9)),
    ("max-pool-width | M4 | coreml_placement | cpu | M6.disp", pool("max_pool", 8, 8), pool("max_pool", 9, 9)),
    (
        "pool-window | M5 | direct | reject | GA",
        layer("Pooling", *MAP, Type="Avg", KernelWidth=31, KernelHeight=31),
        layer("Pooling", *MAP, Type="Avg", KernelWidth=32, KernelHeight=31),
    ),
    ("layer-norm-affine | M1 Max | conversion | reject | AF.149", norm(512, 2048), norm(512, 2560)),
    ("layer-norm-affine | M2 Pro | conversion | reject | AF.149", norm(256, 3995), norm(256, 4096)),
    (
        "layer-norm-affine | M2 Pro | conversion | reject | AF.149",
        norm(512, 1024, gamma_uniform=True),
        norm(512, 1024),
    ),
    (
        "layer-norm-affine | M2 Pro | conversion | reject | AF.149",
        norm(512, 4096, form="rank-2"),
        norm(512, 4096, form="rank-4"),
    ),
    ("layer-norm-width | M5 Pro | conversion | reject | AF.149", norm(256, 8192), norm(256, 10240)),
    (
        "layer-envelope | M1 | direct | reject | GB",
        layer("LocalResponseNormalization", (8, 8, 8), KernelChannel=8),
        layer("LocalResponseNormalization", (16, 8, 8), KernelChannel=16),
    ),
    (
        "lrn-partial | M5 | direct | wrong_result | GB",
        layer("LocalResponseNormalization", (8, 8, 8), KernelChannel=8),
        layer("LocalResponseNormalization", (8, 8, 8), KernelChannel=5),
    ),
    (
        "support-byte | M1 | direct | reject | C10",
        layer("MinMaxNormalization", (8, 8, 16), Dimension="Width"),
        layer("MinMaxNormalization", (8, 8, 16), Dimension="Channel"),
    ),
    ("topk-k | M5 | direct | reject | C09", layer("TopK", (1, 16), K=5), layer("TopK", (1, 16), K=4)),
    (
        "gather-envelope | M1 | conversion | reject | G04",
        layer("gather", batch=1, depth=1, index_channels=3, axes=3),
        layer("gather", batch=2, depth=1, index_channels=3, axes=3),
    ),
    ("gather-static | M5 | conversion | reject | C42", Query("gather", MAP, {"indices": (32,)}), Query("gather", MAP)),
    (
        "runtime-indices | M4 | coreml_placement | cpu | M6.disp",
        Query("gather", MAP, {"indices": (32,)}),
        Query("gather", MAP, attrs={"indices": "runtime"}),
    ),
    (
        "runtime-begin | M4 | coreml_placement | cpu | M6.disp",
        Query("slice_by_size", MAP, attrs={"begin": [0, 0, 4, 4]}),
        Query("slice_by_size", MAP, attrs={"begin": "runtime"}),
    ),
    (
        "argmax-scope | M1 | conversion | reject | C13",
        Query("reduce_argmax", ((8, 64),), attrs={"axis": 1}),
        Query("reduce_argmax", ((8, 64),), attrs={"scope": "whole tensor"}),
    ),
    (
        "arg-extent | M1 | direct | reject | G17",
        layer("ArgMinMax", (1, 1, 1, 2048), Mode="SpatialArgMax"),
        layer("ArgMinMax", (1, 1, 1, 2049), Mode="SpatialArgMax"),
    ),
    (
        "arg-extent | M1 | direct | reject | G17",
        layer("ArgMinMax", (1, 2048, 1, 8), Mode="ChannelArgMax"),
        layer("ArgMinMax", (1, 2049, 1, 8), Mode="ChannelArgMax"),
    ),
    (
        "layer-envelope | M5 | direct | reject | S26",
        layer("SpaceToBatch", (1, 8, 60, 60), FactorX=6, FactorY=2),
        layer("SpaceToBatch", (1, 8, 60, 60), FactorX=5, FactorY=2),
    ),
    (
        "layer-envelope | M5 | direct | reject | S26",
        layer("PixelShuffle", (1, 64, 8, 8), FactorX=4, FactorY=4),
        layer("PixelShuffle", (1, 100, 8, 8), FactorX=5, FactorY=5),
    ),
    (
        "layer-envelope | M5 | direct | reject | AF.caps",
        layer("BatchToSpace", (8, 8, 8, 8), FactorX=2, FactorY=2),
        layer("BatchToSpace", (6, 8, 8, 8), FactorX=2, FactorY=2),
    ),
    (
        "pad-mode | M1 | conversion | decompose | GA",
        layer("pad", *X, mode="constant"),
        layer("pad", *X, mode="reflect"),
    ),
    ("support-byte | M1 | direct | reject | S22", layer("Dropout", *X, Rate=0), layer("Dropout", *X, Rate=0.5)),
    (
        "layer-envelope | M1 | direct | reject | S26",
        layer("CrossProduct", (1, 3, 1, 1), (1, 3, 1, 1)),
        layer("CrossProduct", (1, 3, 1, 4), (1, 3, 1, 4)),
    ),
    (
        "layer-envelope | M1 | direct | reject | GB",
        layer("CostVolume", (1, 8, 4, 16), (1, 8, 4, 20), DisparityRange=4),
        layer("CostVolume", (1, 8, 4, 16), (1, 8, 4, 19), DisparityRange=4),
    ),
    (
        "layer-parameter | M5 | direct | reject | AF.caps",
        layer("ScaledElementWise", (1, 64), (1, 64), Type="Add"),
        layer("ScaledElementWise", (1, 64), (1, 64), Type="Sub"),
    ),
    (
        "scaled-mult-scale | M5 | direct | wrong_result | AF.caps",
        layer("ScaledElementWise", (1, 64), (1, 64), Type="Mult", Scale=1),
        layer("ScaledElementWise", (1, 64), (1, 64), Type="Mult", Scale=2),
    ),
    (
        "layer-envelope | M5 | direct | reject | GB",
        layer("FurthestPointSampling", (3, 8192), CentroidCount=1024),
        layer("FurthestPointSampling", (3, 8193), CentroidCount=1024),
    ),
    (
        "fps-metric | M5 | direct | wrong_result | GB",
        layer("FurthestPointSampling", (3, 64), DistanceMetric="L2"),
        layer("FurthestPointSampling", (3, 64), DistanceMetric="L1"),
    ),
    (
        "rasterizer-identity | M5 | direct | reject | AF.caps",
        layer("KernelRasterizer", (1, 4, 8, 8), OutputChannels=4),
        layer("KernelRasterizer", (1, 4, 8, 8), OutputChannels=36),
    ),
    (
        "image-format | M4 | conversion | reject | G34",
        layer("dequantize", (1, 4, 8, 8), format="&BGA"),
        layer("dequantize", (1, 4, 8, 8), format="&8f0"),
    ),
    (
        "resample-method | M5 | direct | reject | AF.caps",
        layer("Resample", Method="NearestNeighbor"),
        layer("Resample", Method="Bilinear"),
    ),
    (
        "layer-envelope | M1 | direct | reject | S26",
        sdpa(64, 64),
        Query("SDPA", ((1, 8, 64, 64), (1, 8, 64, 64), (1, 8, 32, 64), None)),
    ),
    ("sdpa-length | M5 | direct | wrong_result | N50", sdpa(511, 4096), sdpa(512, 512)),
    (
        "sdpa-mask | M5 | direct | wrong_result | AF.docs",
        sdpa(128, 128, (1, 1, 128, 128)),
        sdpa(128, 128, (1, 8, 128, 128)),
    ),
    (
        "sdpa-subtract-max | M1 | direct | wrong_result | N28",
        sdpa(64, 64, SubtractMax=True),
        sdpa(64, 64, SubtractMax=False),
    ),
    ("chain-depth | M6 | conversion | reject | M6.depth", chain("conv", repeat=386), chain("conv", repeat=387)),
    ("chain-depth | M6 | coreml_placement | cpu | M6.depth", chain("conv", repeat=386), chain("conv", repeat=400)),
    (
        "ffn-weights | M3 Max | conversion | reject | FG",
        Query("chain:ffn", ROW, {"w": (2432, 2560, 1, 1)}, patterns=frozenset({"gated-feed-forward"})),
        Query("chain:ffn", ROW, {"w": (9728, 2560, 1, 1)}, patterns=frozenset({"gated-feed-forward"})),
    ),
    (
        "state-width | M4 | coreml_placement | reject | CT.2631",
        layer("read_state", (1, 8, 135, 256)),
        layer("read_state", (1, 8, 135, 255)),
    ),
    (
        "cache-rank | M2 | coreml_placement | reject | FA.679",
        chain("kv_cache", cache_rank=4),
        chain("kv_cache", cache_rank=5),
    ),
    (
        "square-tiling | M5 | conversion | reject | AF.caps",
        chain("square", "square-before-a-function", shape=((1, 192),)),
        chain("square", "square-before-a-function", shape=((1, 193),)),
    ),
    (
        "chain-pattern | M1 | conversion | wrong_result | N21",
        chain("concat"),
        chain("concat", "joined-width-slices"),
    ),
    (
        "chain-pattern | M5 | conversion | reject | AF.116",
        chain("reduce_sum"),
        chain("reduce_sum", "reduction-times-zero"),
    ),
    (
        "chain-pattern | M5 | conversion | wrong_result | AF.tests",
        chain("round"),
        chain("round", "round-then-scale"),
    ),
    (
        "chain-pattern | M5 Pro | conversion | wrong_result | CAI.112",
        chain("mul"),
        chain("mul", "two-quantise-pairs-around-a-product"),
    ),
    (
        "fp32-program | M4 | conversion | reject | CAZ",
        chain("text_encoder"),
        Query("chain:text_encoder", ROW, dtype="fp32"),
    ),
    (
        "fp32-input | M1 | conversion | reject | MX.6",
        chain("cast", "cast-behind-an-fp32-input"),
        Query("chain:cast", ROW, dtype="fp32", patterns=frozenset({"cast-behind-an-fp32-input"})),
    ),
    (
        "integer-operand | M4 | coreml_placement | cpu | M6.disp",
        Query("mul", MAP * 2),
        Query("mul", MAP * 2, dtype="int32"),
    ),
    (
        "integer-cast | M4 | coreml_placement | cpu | M6.disp",
        layer("cast", *MAP, dtype="fp32"),
        layer("cast", *MAP, dtype="int32"),
    ),
    (
        "integer-weight | M1 | conversion | reject | G04",
        Query("matmul", ((8, 64),), {"y": (64, 8)}, weights=W8),
        Query("matmul", ((8, 64),), {"y": (64, 8)}, weights={"encoding": "integer"}),
    ),
    (
        "grouped-scales | M2 | coreml_placement | cpu | CT.2510",
        Query("linear", weights=W8),
        Query("linear", weights={"encoding": "blockwise"}),
    ),
    (
        "grouped-scales | M4 | conversion | reject | MON",
        Query("conv", weights=W8),
        Query("conv", weights={"encoding": "blockwise"}),
    ),
    (
        "grouped-scales | M4 | conversion | reject | CAZ",
        Query("chain:text_encoder", weights={"encoding": "lut4"}),
        Query("chain:text_encoder", weights={"encoding": "lut4", "palette_per_group": True}),
    ),
    (
        "grouped-scales | M5 Pro | conversion | reject | LA.qwen",
        Query("chain:layer", weights={"encoding": "int4_grouped"}),
        Query("chain:layer", weights={"encoding": "int4_grouped"}, runtime="coreai"),
    ),
    (
        "vector-palette | M6 | coreml_placement | cpu | FRG",
        Query("conv", weights={"encoding": "vq"}),
        Query("conv", weights={"encoding": "vq", "vectors_along": "input"}),
    ),
    (
        "element-type | M4 | conversion | reject | MON",
        Query("conv", weights=W8),
        Query("conv", weights={"encoding": "fp8e4m3"}),
    ),
    ("element-type | M4 | conversion | reject | GC", Query("relu", MAP), Query("relu", MAP, dtype="bf16")),
    (
        "element-type | M6 | conversion | reject | G36",
        Query("conv", weights={"encoding": "fp8e4m3"}),
        Query("conv", weights={"encoding": "bf16"}),
    ),
    (
        "element-type | M6 | conversion | reject | FTC",
        Query("conv", weights={"encoding": "fp8-e4m3"}),
        Query("conv", weights={"encoding": "fp8-e5m2"}),
    ),
    (
        "program-size | M5 Pro | conversion | reject | AFP.45",
        chain("transformer_chunk", weight_bytes=1.5e9),
        chain("transformer_chunk", weight_bytes=3.4e9),
    ),
    (
        "program-size | M4 Max | coreml_placement | cpu | BOOK",
        chain("layers", weight_bytes=1.9e9, kind="layers"),
        chain("layers", weight_bytes=2.3e9, kind="layers"),
    ),
    (
        "program-size | M4 Max | coreml_placement | reject | BOOK",
        chain("model", weight_bytes=0.83e9, kind="decoder"),
        chain("model", weight_bytes=1.5e9, kind="decoder"),
    ),
    (
        "program-size | M6 | conversion | reject | FRG",
        Query("chain:stack", attrs={"weight_bytes": 3e9, "kind": "convolutions"}, runtime="coreai"),
        Query("chain:stack", attrs={"weight_bytes": 4e9, "kind": "convolutions"}, runtime="coreai"),
    ),
    (
        "program-size | M6 | conversion | reject | FRG",
        Query("chain:stack", attrs={"weight_bytes": 0.72e9, "kind": "layers"}, runtime="coreai"),
        Query("chain:stack", attrs={"weight_bytes": 1.1e9, "kind": "layers"}, runtime="coreai"),
    ),
    (
        "decode-layers | M5 Pro | conversion | reject | AFP.254",
        chain("decode", decode_layers=30),
        chain("decode", decode_layers=32),
    ),
    (
        "indexed-write | M6 | conversion | reject | FRG",
        chain("kv_new_rows_out"),
        chain("kv_index_copy", writes="computed places"),
    ),
    (
        "indexed-write | M5 Pro | coreml_placement | reject | MOB.67",
        chain("kv", cache_rank=4),
        chain("kv", cache_rank=4, writes="computed places"),
    ),
    (
        "recurrent-layers | M6 | conversion | reject | FRG",
        Query("chain:deltanet", attrs={"recurrent_layers": 4}, runtime="coreai"),
        Query("chain:deltanet", attrs={"recurrent_layers": 8}, runtime="coreai"),
    ),
    (
        "bonded-mode | M5 | conversion | reject | FRG",
        Query("chain:chunk", attrs={"bonded_mode": 1}, runtime="coreai"),
        Query("chain:chunk", attrs={"bonded_mode": 2}, runtime="coreai"),
    ),
    (
        "sdpa-value-width | M4 Max | conversion | reject | ZOO",
        Query("scaled_dot_product_attention", ((1, 8, 128, 64),) * 3, runtime="coreai"),
        Query("scaled_dot_product_attention", (*((1, 8, 128, 64),) * 2, (1, 8, 128, 32)), runtime="coreai"),
    ),
    (
        "state-update | M5 Pro | coreml_placement | unknown | MOB.77",
        layer("write_state", (1, 8, 128, 64)),
        layer("write_state", (1, 8, 128, 64), updates="a cache"),
    ),
    (
        "state-count | A19 Pro | coreml_placement | cpu | CLLM",
        layer("write_state", (1, 8, 128, 64), updates="a cache", states=2),
        layer("write_state", (1, 8, 128, 64), updates="a cache", states=3),
    ),
    (
        "state-count | M4 | coreml_placement | cpu | CLLM",
        layer("write_state", (1, 8, 128, 64), updates="a cache", states=1, unlike=False),
        layer("write_state", (1, 8, 128, 64), updates="a cache", states=2, unlike=True),
    ),
    (
        "few-queries | M5 Pro | conversion | reject | LA.qwen",
        Query("chain:softmax", ((8, 4, 128),), patterns=FEW, runtime="coreai"),
        Query("chain:softmax", ((8, 2, 128),), patterns=FEW, runtime="coreai"),
    ),
    (
        "few-queries | M5 Pro | conversion | reject | SCOPE",
        Query("chain:softmax", ((8, 1, 128),), patterns=FEW),
        Query("chain:softmax", ((8, 1, 128),), patterns=FEW, runtime="coreai"),
    ),
    (
        "palette-bits | M1 | conversion | decompose | G25",
        Query("linear", weights={"encoding": "lut4"}),
        Query("linear", weights={"encoding": "lut6"}),
    ),
    ("slice-x16 | M2 Pro | conversion | wrong_result | N18", cut(4094, [0, 0, 0, 1]), cut(4096, [0, 0, 0, 1])),
    (
        "slice-x16 | M1 | conversion | wrong_result | N20",
        cut(4096, [0, 0, 1, 0]),
        cut(4096, [0, 0, 0, 1], "slice_by_index"),
    ),
    (
        "int8-x16 | M5 Pro | conversion | wrong_result | N17",
        Query("matmul", ((31, 15),), {"y": (15, 16)}, weights=W8, values={"max_abs": 4094}),
        Query("matmul", ((31, 15),), {"y": (15, 16)}, weights=W8, values={"max_abs": 4096}),
    ),
    (
        "accumulator-range | M1 | conversion | wrong_result | N05",
        Query("matmul", values={"largest_output": 32752}),
        Query("matmul", values={"largest_output": 32768}),
    ),
    (
        "fp16-range | M6 | conversion | wrong_result | N01",
        Query("add", values={"largest_output": 65504}),
        Query("add", values={"largest_output": 65536}),
    ),
    (
        "value-cliff | M4 | coreml_placement | wrong_result | CT.2687",
        Query("softplus", values={"x": 10.0}),
        Query("softplus", values={"x": 11.0}),
    ),
    (
        "value-cliff | M5 | conversion | wrong_result | AF.116",
        Query("round", values={"x": 1023}),
        Query("round", values={"x": -1024}),
    ),
    (
        "value-cliff | M1 | conversion | wrong_result | N29",
        Query("exp", values={"x": 11.0}),
        Query("exp", values={"x": 11.094}),
    ),
    (
        "value-cliff | M1 | conversion | wrong_result | N30",
        Query("square", values={"x": 255}),
        Query("square", values={"x": 256}),
    ),
    (
        "value-cliff | M1 | conversion | wrong_result | N29",
        Query("exp2", values={"x": 15}),
        Query("exp2", values={"x": 16}),
    ),
]


@pytest.mark.parametrize(("case", "fine", "wrong"), BOUNDARIES, ids=[row[0] for row in BOUNDARIES])
def test_both_sides_of_a_boundary(case, fine, wrong):
    rule, chip, route, word, source = case.split(" | ")
    assert source[0] in "CN" or source in known_sources()
    passed = judge(fine, target(chip), route)
    assert rule not in [finding.rule for finding in passed.findings]
    refused = judge(wrong, target(chip), route)
    found = next(finding for finding in refused.findings if finding.rule == rule)
    assert (refused.verdict, found.verdict) == (word, word)
    assert found.message
    assert found.hint or RULES[rule].validates  # their sentences say what a layer must be
    assert (found.stage in STAGES, found.route) == (True, route)
    assert "{" not in found.message
    assert found.evidence.source
    assert found.evidence.confidence != "unknown"


def known_sources():
    return {**sources(), **store.load("gate_limits")["sources"]}


def test_every_rule_has_a_boundary_test():
    """The checks of the validators have theirs in test_validators.py, one of each layer."""
    tested = {row[0].split(" | ")[0] for row in BOUNDARIES}
    assert tested | {name for name, rule in RULES.items() if rule.validates} == set(RULES)


def test_rules_and_records_belong_together():
    assert set(RULES) == set(rule_records())


def test_every_record_names_a_known_source():
    document = store.load("gate_limits")
    for section in ("rules", "ops", "placement"):
        for record in document[section]:
            assert section == "placement" or record["stage"] in STAGES, record
            named = [*record.get("src", ()), *record.get("basis", ())]
            assert named or {"limit", "global", "fact"} & set(record), record
            assert set(named) <= set(known_sources()), record
    assert {record["op"] for record in document["ops"]} <= known_names()


@pytest.mark.parametrize(
    ("op", "chip", "route", "word", "source"),
    [
        ("tan", "M1", "conversion", "reject", "G04: no path on any family"),
        ("cumsum", "M1", "conversion", "reject", "C43"),
        ("range_1d", "M1", "conversion", "reject", "AF.opcat"),
        ("range_1d", "M5", "conversion", "accept", "AF.sweep"),
        ("topk", "M1", "conversion", "reject", "C09"),
        ("topk", "M2 Pro", "conversion", "accept", "C09"),
        ("topk", "M3 Pro", "coreml_placement", "cpu", "RFD.1495"),
        ("topk", "M4", "coreml_placement", "accept", "M6.disp"),
        ("upsample_bilinear", "M1", "conversion", "decompose", "U18"),
        ("upsample_bilinear", "M2 Pro", "conversion", "accept", "GA"),
        ("affine", "M1", "conversion", "reject", "U19"),
        ("affine", "M5", "conversion", "accept", "AF.sweep"),
        ("crop_resize", "M5", "conversion", "reject", "C12"),
        ("logical_and", "M5", "conversion", "reject", "C41"),
        ("logical_and", "M4", "coreml_placement", "accept", "C41"),
        ("lstm", "M4", "coreml_placement", "cpu", "M6.disp"),
        ("sin", "M1", "conversion", "reject", "chapter 26: reject by conversion; the rewrite is ours"),
        ("sin", "M5", "conversion", "accept", "AF.sweep"),
        ("Sort", "M1", "direct", "reject", "S22"),
        ("Sort", "M5", "direct", "accept", "AF.tests"),
        ("Reverse", "M5", "direct", "reject", "S22"),
        ("GlobalArgMinMax", "M1", "direct", "accept", "C13"),
        ("CostVolume", "M1", "conversion", "reject", "reached by authoring only"),
        ("relu", "h12", "conversion", "reject", "MIL is only supported for H13+"),
        ("relu", "h18c", "conversion", "reject", "status 22"),
        ("relu", "u1", "conversion", "accept", "M6.tgt"),
        ("channel_layer_norm", "M2 Pro", "conversion", "accept", "AF.201"),
    ],
)
def test_the_answer_for_a_name(op, chip, route, word, source):
    assert judge(Query(op), target(chip), route).verdict == word, source


@pytest.mark.parametrize(
    ("encoding", "chip", "word"),
    [
        ("int8", "M1", "decompose"),
        ("int8", "M2", "accept"),
        ("blockwise", "M2", "decompose"),
        ("sparse", "M1", "accept"),
    ],
)
def test_weight_forms_that_are_expanded(encoding, chip, word):
    """G07: int8 folds on A13 and streams from A14, block-wise folds below A15."""
    assert judge(Query("linear", weights={"encoding": encoding}), target(chip)).verdict == word


@pytest.mark.parametrize("route", ["conversion", "direct", "coreml_placement"])
def test_an_unknown_name_is_never_native(route):
    verdict = judge(Query("maxpool2"), target("M5"), route)
    assert verdict.verdict == ("cpu" if route == "coreml_placement" else "reject")
    assert "max_pool" in verdict.findings[0].hint


def test_the_worst_finding_is_the_verdict():
    both = Query("conv", X, {"weight": (8, 8, 1, 16)}, {"strides": [7, 7]})
    verdict = judge(both, target("M1"))
    assert verdict.verdict == "reject"
    assert [finding.verdict for finding in verdict.findings] == ["reject", "decompose"]
    assert verdict.findings[0].oversize
    assert verdict.to_json()["findings"][0]["limit"] == 13
    assert "C16" in str(verdict) or "13" in str(verdict)


def test_eligible_is_not_placed():
    """The published estimates (C30): one small op stays on the CPU, a heavy one moves (M6.disp, VX)."""
    small = judge(conv(3, 3), target("M4"), "coreml_placement")
    assert (small.verdict, small.placed) == ("accept", "cpu")
    heavy = Query("matmul", ((512, 512), (512, 512)))
    assert placed(heavy) == "ane"
    assert placed(Query("matmul", ((512, 512), (512, 512)), dtype="fp32")) == "cpu"
    assert judge(heavy, target("M4"), "conversion").placed is None
    refused = judge(Query("tan", MAP), target("M4"), "coreml_placement")
    assert (refused.verdict, refused.placed) == ("cpu", "cpu")


def test_estimates_return_the_published_figures():
    figures = store.load("cost_model")["placement_model_m4"]["estimates_us"]
    example = Query("conv", MAP, {"weight": (64, 64, 3, 3)})
    assert estimate_us(example) == pytest.approx(figures["conv3x3 64->64 32x32"])
    assert estimate_us(Query("relu", MAP)) == pytest.approx(figures["relu"])


def test_bad_questions_are_errors_of_this_package():
    with pytest.raises(AneforgeError, match=r"route 'convertion'.*conversion"):
        judge(Query("relu"), target("M1"), "convertion")
    with pytest.raises(AneforgeError, match=r"runtime 'metal'.*coreml"):
        judge(Query("relu", runtime="metal"), target("M1"))
    with pytest.raises(AneforgeError, match="op: expected"):
        judge(Query(""), target("M1"))


def test_what_only_another_runtime_refuses_is_no_refusal_of_the_program():
    """A user's graph is asked about for all runtimes: its own program runs, and the message names who fails."""
    query = Query("chain:layer", weights={"encoding": "int4_grouped"}, runtime=ALL_RUNTIMES)
    (finding,) = judge(query, target("M5 Pro")).findings
    assert (finding.verdict, finding.runtimes) == ("cpu", ("coreml", "coreai"))
    assert finding.message.endswith("(by Core ML and Core AI).")
    assert finding.to_json()["runtimes"] == ["coreml", "coreai"]
    assert judge(query, target("M4")).verdict == "reject"  # there its own program does not compile either (MON)


def test_what_one_runtime_takes_is_no_licence_for_the_others():
    """CAI.68: Core AI leaves an empty operand of a concat out."""
    empty = ((1, 8), (1, 0))
    answers = [judge(Query("concat", empty, runtime=name), target("M4 Max")).verdict for name in RUNTIMES]
    assert dict(zip(RUNTIMES, answers, strict=True)) == {"direct": "reject", "coreml": "reject", "coreai": "accept"}
    assert judge(Query("concat", empty, runtime=ALL_RUNTIMES), target("M4 Max")).verdict == "reject"
    sections = {"sections": (8, 0)}
    assert judge(Query("split", ((1, 8),), attrs=sections, runtime="coreai"), target("M4 Max")).verdict == "reject"


def test_the_cpu_computes_correctly_what_core_ml_leaves_to_it():
    """LA.qdq: the product with the wrong scale is right through Core ML where it is too small for the engine."""
    pattern = frozenset(("two-quantise-pairs-around-a-product",))
    small = judge(Query("chain:mul", ((1, 32, 1, 64),) * 2, patterns=pattern), target("M5 Pro"), "coreml_placement")
    assert (small.verdict, small.placed) == ("accept", "cpu")
    larger = Query("chain:mul", ((1, 1024, 1, 1024),) * 2, patterns=pattern)  # N78: wrong through Core ML too
    assert judge(larger, target("M5 Pro"), "coreml_placement").verdict == "wrong_result"
    kernels = {"gate": (10240, 2560, 1, 1), "down": (2560, 10240, 1, 1)}
    block = Query("chain:gated_mlp", ((1, 2560, 1, 64),), kernels, patterns=pattern)
    large = judge(block, target("M5 Pro"), "coreml_placement")
    assert (large.verdict, large.placed) == ("wrong_result", "ane")


def test_one_softmax_over_a_long_history_is_one_long_contraction():
    """M6.disp: two runtime operands are contracted over at most 32768."""
    assert judge(chain("attention", attended_keys=32768), target("M6")).verdict == "accept"
    (finding,) = judge(chain("attention", attended_keys=65472), target("M6")).findings
    assert finding.rule == "matmul-runtime-contraction"
