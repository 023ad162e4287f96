"""aneforge: an open compiler, simulator and cost model for the Apple Neural Engine, on any machine.

One compiler builds every chip; what differs is data. ``aneforge.target("M2 Pro")`` gives that data for one
chip, with the evidence behind each value; ``aneforge.input(...)`` starts a graph.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aneforge.compiler.compile import Compiled, compile_all
    from aneforge.compiler.program import Program
    from aneforge.compiler.refusal import CompileError
    from aneforge.cost.estimate import DispatchFloorWarning, Estimate, estimate, estimate_provenance
    from aneforge.cost.peak import project_peak
    from aneforge.divergence.warned import CrossChipFP16Warning, PrecisionWarning
    from aneforge.errors import AneforgeError, GraphError
    from aneforge.exports import export_coreml
    from aneforge.frontends import LoadError, from_torch, load, load_graph, onnx_to_tensor
    from aneforge.gate.preflight import Preflight, preflight, preflight_all
    from aneforge.graph import Graph, Tensor, evaluate
    from aneforge.graph.encoding import Encoded
    from aneforge.graph.ops.blocks import (
        conv2d,
        conv_block,
        conv_param,
        cross_attention,
        einsum,
        geglu,
        group_norm_train,
        mha,
        rope,
    )
    from aneforge.graph.ops.contraction import (
        bmm_weight,
        conv,
        conv_transpose,
        dynamic_conv,
        einsum_native,
        linear,
        matmul,
    )
    from aneforge.graph.ops.elementwise import (
        atan2,
        floor_div,
        logical_and,
        logical_or,
        logical_xor,
        maximum,
        minimum,
        mod,
        select,
        where,
    )
    from aneforge.graph.ops.extra import (
        band_part,
        dropout,
        gru,
        lstm,
        one_hot,
        random_normal,
        random_uniform,
        reverse_sequence,
        rnn,
        scatter,
    )
    from aneforge.graph.ops.layers import (
        batch_to_space,
        channel_to_space,
        cost_volume,
        cross_correlation,
        cross_product,
        dynamic_slice,
        flatten,
        fps,
        input_view,
        lrn,
        minmax_norm,
        radius_search,
        scaled_elementwise,
        sdpa,
        sort,
        space_to_batch,
        space_to_channel,
        topk,
    )
    from aneforge.graph.ops.leaf import cast, const, image_input, input, parameter
    from aneforge.graph.ops.norm import batch_norm, instance_norm, local_response_norm
    from aneforge.graph.ops.quantised import dequantize, quantize
    from aneforge.graph.ops.shape import concat, crop, gather, pad, split, stack
    from aneforge.graph.ops.spatial import (
        affine,
        depth_to_space,
        pixel_shuffle,
        pixel_unshuffle,
        resize_bilinear,
        resize_nearest_neighbor,
        space_to_depth,
        upsample_bilinear,
    )
    from aneforge.loading import load_onnx
    from aneforge.model import Model, MultiModel, SegmentedModel, compile, compile_multi, fidelity
    from aneforge.numerics.cures import reduce_sum_to_matmul
    from aneforge.numerics.risk import precision_risk
    from aneforge.regions import Partition, partition
    from aneforge.targets import Fact, Family, Target, target
    from aneforge.targets.catalogue import (
        OP_CATALOG,
        device_status,
        is_native,
        min_native_family,
        op_info,
        ops_on,
        walled_everywhere,
    )
    from aneforge.tuning.precision import tune_precision
    from aneforge.tuning.search import tune
    from aneforge.tuning.tiles import attention_tiles, tune_attention

__version__ = "0.1.0"

# Nothing is imported until it is used: `import aneforge` reads no file and loads no library.
_HOMES = {
    "aneforge.compiler.compile": "Compiled compile_all",
    "aneforge.model": "Model MultiModel SegmentedModel compile compile_multi fidelity",
    "aneforge.compiler.program": "Program",
    "aneforge.compiler.refusal": "CompileError",
    "aneforge.gate.preflight": "Preflight preflight preflight_all",
    "aneforge.targets.catalogue": (
        "OP_CATALOG device_status is_native min_native_family op_info ops_on walled_everywhere"
    ),
    "aneforge.cost.estimate": "DispatchFloorWarning Estimate estimate estimate_provenance",
    "aneforge.cost.peak": "project_peak",
    "aneforge.errors": "AneforgeError GraphError",
    "aneforge.exports": "export_coreml",
    "aneforge.frontends": "LoadError from_torch load load_graph onnx_to_tensor",
    "aneforge.loading": "load_onnx",
    "aneforge.graph": "Graph Tensor evaluate",
    "aneforge.graph.encoding": "Encoded",
    "aneforge.graph.ops.blocks": (
        "conv2d conv_block conv_param cross_attention einsum geglu group_norm_train mha rope"
    ),
    "aneforge.graph.ops.contraction": ("bmm_weight conv conv_transpose dynamic_conv einsum_native linear matmul"),
    "aneforge.graph.ops.elementwise": (
        "atan2 floor_div logical_and logical_or logical_xor maximum minimum mod select where"
    ),
    "aneforge.graph.ops.extra": (
        "band_part dropout gru lstm one_hot random_normal random_uniform reverse_sequence rnn scatter"
    ),
    "aneforge.graph.ops.layers": (
        "batch_to_space channel_to_space cost_volume cross_correlation cross_product dynamic_slice "
        "flatten fps input_view lrn minmax_norm radius_search scaled_elementwise sdpa sort space_to_batch "
        "space_to_channel topk"
    ),
    "aneforge.graph.ops.leaf": "cast const image_input input parameter",
    "aneforge.graph.ops.norm": "batch_norm instance_norm local_response_norm",
    "aneforge.graph.ops.quantised": "dequantize quantize",
    "aneforge.graph.ops.shape": "concat crop gather pad split stack",
    "aneforge.graph.ops.spatial": (
        "affine depth_to_space pixel_shuffle pixel_unshuffle resize_bilinear resize_nearest_neighbor "
        "space_to_depth upsample_bilinear"
    ),
    "aneforge.numerics.cures": "reduce_sum_to_matmul",
    "aneforge.numerics.risk": "precision_risk",
    "aneforge.divergence.warned": "CrossChipFP16Warning PrecisionWarning",
    "aneforge.regions": "Partition partition",
    "aneforge.tuning": "attention_tiles tune tune_attention tune_precision",
    "aneforge.targets": "Fact Family Target target",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = [
    "OP_CATALOG",
    "AneforgeError",
    "CompileError",
    "Compiled",
    "CrossChipFP16Warning",
    "DispatchFloorWarning",
    "Encoded",
    "Estimate",
    "Fact",
    "Family",
    "Graph",
    "GraphError",
    "LoadError",
    "Model",
    "MultiModel",
    "Partition",
    "PrecisionWarning",
    "Preflight",
    "Program",
    "SegmentedModel",
    "Target",
    "Tensor",
    "__version__",
    "affine",
    "atan2",
    "attention_tiles",
    "band_part",
    "batch_norm",
    "batch_to_space",
    "bmm_weight",
    "cast",
    "channel_to_space",
    "compile",
    "compile_all",
    "compile_multi",
    "concat",
    "const",
    "conv",
    "conv2d",
    "conv_block",
    "conv_param",
    "conv_transpose",
    "cost_volume",
    "crop",
    "cross_attention",
    "cross_correlation",
    "cross_product",
    "depth_to_space",
    "dequantize",
    "device_status",
    "dropout",
    "dynamic_conv",
    "dynamic_slice",
    "einsum",
    "einsum_native",
    "estimate",
    "estimate_provenance",
    "evaluate",
    "export_coreml",
    "fidelity",
    "flatten",
    "floor_div",
    "fps",
    "from_torch",
    "gather",
    "geglu",
    "group_norm_train",
    "gru",
    "image_input",
    "input",
    "input_view",
    "instance_norm",
    "is_native",
    "linear",
    "load",
    "load_graph",
    "load_onnx",
    "local_response_norm",
    "logical_and",
    "logical_or",
    "logical_xor",
    "lrn",
    "lstm",
    "matmul",
    "maximum",
    "mha",
    "min_native_family",
    "minimum",
    "minmax_norm",
    "mod",
    "one_hot",
    "onnx_to_tensor",
    "op_info",
    "ops_on",
    "pad",
    "parameter",
    "partition",
    "pixel_shuffle",
    "pixel_unshuffle",
    "precision_risk",
    "preflight",
    "preflight_all",
    "project_peak",
    "quantize",
    "radius_search",
    "random_normal",
    "random_uniform",
    "reduce_sum_to_matmul",
    "resize_bilinear",
    "resize_nearest_neighbor",
    "reverse_sequence",
    "rnn",
    "rope",
    "scaled_elementwise",
    "scatter",
    "sdpa",
    "select",
    "sort",
    "space_to_batch",
    "space_to_channel",
    "space_to_depth",
    "split",
    "stack",
    "target",
    "topk",
    "tune",
    "tune_attention",
    "tune_precision",
    "upsample_bilinear",
    "walled_everywhere",
    "where",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
