"""aneforge: an open compiler, simulator and cost model for the Apple Neural Engine, on any machine.

Eight functions (``check``, ``partition``, ``risks``, ``diverges``, ``compile``, ``run``, ``compare`` and ``estimate``)
do what the commands of the same name do. Each takes a model first (a graph, its output tensors, a compiled model, or
the path of a model file), then ``target`` (``"m1"``, ``"m1,m5"``, ``"m1..m6"``, ``"all"``), and returns an object that
can be printed and has ``to_json()``; ``estimate`` returns microseconds. ``compile`` and ``estimate`` take one chip,
``compile_all`` and ``estimate_all`` several. ``aneforge.Study`` is one model on
some chips: every function asks one, and several questions to one of them share the work.
``aneforge.report(model)`` is everything about a model as a page, and ``aneforge.plot`` a picture; notebooks show both.
``aneforge.target("M2 Pro")`` gives the data of one chip, with the evidence behind each value; ``aneforge.input(...)``
starts a graph.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aneforge import autograd, chips, special, streaming
    from aneforge.advice.estimates import Estimates, estimate, estimate_all
    from aneforge.advice.form_search import tune
    from aneforge.advice.forms import apply_form, attention_tiles, tune_attention
    from aneforge.advice.precision import tune_precision
    from aneforge.advice.split.result import SplitPlan
    from aneforge.advice.split.runner import load_split
    from aneforge.advice.split.splitting import split_model
    from aneforge.chips import Fact, Family, Target, target
    from aneforge.chips.catalogue import (
        OP_CATALOG,
        device_status,
        is_native,
        min_native_family,
        op_info,
        ops_on,
        walled_everywhere,
    )
    from aneforge.compiler.program import Program
    from aneforge.compiler.refusal import CompileError
    from aneforge.compiler.storage import exceeds_kmem
    from aneforge.cost.estimate import DispatchFloorWarning, Estimate, estimate_provenance
    from aneforge.cost.peak import project_peak
    from aneforge.engine.authoring.bridge import bridge
    from aneforge.engine.authoring.pwl import pwl
    from aneforge.errors import AneforgeError, CrossChipFP16Warning, GraphError, LoadError, PrecisionWarning
    from aneforge.formats import from_torch, load, load_graph, onnx_to_tensor
    from aneforge.formats.exports import SavedNetplist, save_netplist
    from aneforge.graph import Graph, Tensor, evaluate
    from aneforge.graph import builders as ops
    from aneforge.graph.builders import *  # noqa: F403
    from aneforge.graph.encoding import Encoded
    from aneforge.numerics.causes import reduce_sum_to_matmul
    from aneforge.numerics.divergence import predict_fp16_divergence
    from aneforge.reports.document import Report
    from aneforge.reports.evaluation.evaluate import evaluate_model, merge_evaluations
    from aneforge.reports.evaluation.result import Evaluation
    from aneforge.reports.gather import report
    from aneforge.reports.picture import plot
    from aneforge.study.checking import Check, check
    from aneforge.study.comparison import Comparison, compare
    from aneforge.study.decoding import Decoding, decode_steps
    from aneforge.study.exporting import export_coreml
    from aneforge.study.loading import load_onnx, load_program
    from aneforge.study.model import Model, MultiModel, SegmentedModel, compile, compile_multi, fidelity
    from aneforge.study.pairwise import DivergenceReport, diverges
    from aneforge.study.partition import Partition
    from aneforge.study.plan import partition
    from aneforge.study.preflight import Preflight
    from aneforge.study.preflighting import preflight, preflight_all
    from aneforge.study.probes import ProbeReport, probe
    from aneforge.study.programs import Programs, compile_all
    from aneforge.study.risk import RiskReport, precision_risk, risks
    from aneforge.study.running import RunResult, run
    from aneforge.study.study import Study
    from aneforge.study.validate.layer import validate_layer
    from aneforge.study.validate.network import validate_network
    from aneforge.study.validate.program import validate_program
    from aneforge.svg import Picture
    from aneforge.text import ByChip
    from aneforge.train.backward import backward, backward_from
    from aneforge.train.gradcheck import GradCheck, gradcheck
    from aneforge.train.losses import CEHandle, mse, softmax_cross_entropy
    from aneforge.train.optimisers import SGD, Adam
    from aneforge.train.parity import Parity, compare_training
    from aneforge.train.stack import CheckpointedStack
    from aneforge.train.trainer import Trainer, TrainingWarning
    from aneforge.train.unrolled import UnrolledTrainer

from aneforge.version import __version__

# The public names by task, each with the module that holds it. Nothing is imported until it is used: `import aneforge`
# reads no file and loads no library. The table below is also the list in this module's help.
_HOMES: dict[str, dict[str, str]] = {
    "Look up chips and ops": {
        "aneforge.chips": "Fact Family Target target",
        "aneforge.chips.catalogue": (
            "OP_CATALOG device_status is_native min_native_family op_info ops_on walled_everywhere"
        ),
        "aneforge.compiler.storage": "exceeds_kmem",
        "aneforge.study.probes": "ProbeReport probe",
    },
    "Build a graph": {
        "aneforge.graph": "Graph Tensor evaluate",
        "aneforge.graph.encoding": "Encoded",
        "aneforge.graph.ops.leaf": "cast const image_input input",
        "aneforge.graph.ops.contraction": "bmm_weight conv conv_transpose dynamic_conv einsum_native linear matmul",
        "aneforge.graph.ops.blocks": "cross_attention einsum geglu mha rope",
        "aneforge.graph.ops.elementwise": (
            "atan2 floor_div logical_and logical_or logical_xor maximum minimum mod select where"
        ),
        "aneforge.graph.ops.norm": "batch_norm instance_norm local_response_norm",
        "aneforge.graph.ops.shape": "concat crop gather pad split stack",
        "aneforge.graph.ops.spatial": (
            "affine depth_to_space pixel_shuffle pixel_unshuffle resize_bilinear resize_nearest_neighbor "
            "space_to_depth upsample_bilinear"
        ),
        "aneforge.graph.ops.layers": (
            "batch_to_space channel_to_space flatten lrn minmax_norm scaled_elementwise sdpa space_to_batch "
            "space_to_channel"
        ),
        "aneforge.graph.ops.geometry": "cost_volume cross_correlation cross_product fps radius_search",
        "aneforge.graph.ops.ranking": "sort topk",
        "aneforge.graph.ops.sampling": "crop_resize resample",
        "aneforge.graph.ops.slices": "dynamic_slice input_view",
        "aneforge.graph.ops.state": "live_state ring_read ring_write",
        "aneforge.graph.ops.volume": "conv3d",
        "aneforge.engine.authoring": "bridge pwl",
        "aneforge.graph.ops.extra": (
            "band_part dropout gru lstm one_hot random_normal random_uniform reverse_sequence rnn scatter"
        ),
        "aneforge.graph.ops.quantised": "dequantize quantize",
        "aneforge.errors": "AneforgeError GraphError",
    },
    "Load a model file": {
        "aneforge.formats": "LoadError from_torch load load_graph onnx_to_tensor",
        "aneforge.study.loading": "load_onnx load_program",
    },
    "Report on a model": {
        "aneforge.reports.gather": "report",
        "aneforge.reports.document": "Report",
        "aneforge.reports.picture": "plot",
        "aneforge.svg": "Picture",
    },
    "Check a model against chips": {
        "aneforge.study.study": "Study",
        "aneforge.study.checking": "Check check",
        "aneforge.study.preflight": "Preflight",
        "aneforge.study.preflighting": "preflight preflight_all",
        "aneforge.study.partition": "Partition",
        "aneforge.study.plan": "partition",
        "aneforge.study.pairwise": "DivergenceReport diverges",
        "aneforge.study.risk": "RiskReport precision_risk risks",
        "aneforge.numerics.divergence": "predict_fp16_divergence",
        "aneforge.numerics.causes": "reduce_sum_to_matmul",
        "aneforge.errors": "CrossChipFP16Warning PrecisionWarning",
        "aneforge.text": "ByChip",
        "aneforge.study.validate": "validate_layer validate_network validate_program",
    },
    "Compile": {
        "aneforge.study.model": "Model MultiModel SegmentedModel compile compile_multi",
        "aneforge.study.programs": "Programs compile_all",
        "aneforge.compiler.program": "Program",
        "aneforge.compiler.refusal": "CompileError",
        "aneforge.advice": "apply_form attention_tiles tune tune_attention tune_precision",
        "aneforge.advice.split": "SplitPlan load_split split_model",
    },
    "Run in the simulator": {
        "aneforge.study.running": "RunResult run",
        "aneforge.study.comparison": "Comparison compare",
        "aneforge.study.decoding": "Decoding decode_steps",
        "aneforge.study.model": "fidelity",
        "aneforge.reports.evaluation.evaluate": "evaluate_model merge_evaluations",
        "aneforge.reports.evaluation.result": "Evaluation",
    },
    "Measure (estimate times)": {
        "aneforge.cost.estimate": "DispatchFloorWarning Estimate estimate_provenance",
        "aneforge.advice.estimates": "Estimates estimate estimate_all",
        "aneforge.cost.peak": "project_peak",
    },
    "Deploy": {
        "aneforge.formats.exports": "SavedNetplist save_netplist",
        "aneforge.study.exporting": "export_coreml",
    },
    "Train": {
        "aneforge.graph.ops.leaf": "parameter",
        "aneforge.graph.ops.trainable": "conv2d conv_block conv_param group_norm_train",
        "aneforge.train.losses": "CEHandle mse softmax_cross_entropy",
        "aneforge.train.backward": "backward backward_from",
        "aneforge.train.optimisers": "SGD Adam",
        "aneforge.train.trainer": "Trainer TrainingWarning",
        "aneforge.train.unrolled": "UnrolledTrainer",
        "aneforge.train.stack": "CheckpointedStack",
        "aneforge.train.gradcheck": "GradCheck gradcheck",
        "aneforge.train.parity": "Parity compare_training",
    },
}
_HOME_OF = {name: home for homes in _HOMES.values() for home, names in homes.items() for name in names.split()}


def _names_by_task() -> str:
    """The list in the help: every public name under what it is for."""
    lines = []
    for task, homes in _HOMES.items():
        names = sorted((name for names in homes.values() for name in names.split()), key=str.casefold)
        lines += ["", f"{task}:"]
        line = "   "
        for name in names:
            if len(line) + len(name) + 1 > 110:
                lines.append(line)
                line = "   "
            line += f" {name}"
        lines.append(line)
    return "\n".join(lines)


__doc__ = f"{__doc__}{_names_by_task()}\n"


# Modules that existing code reaches as ``af.special``, and names of the public peer that are out of scope here.
_MODULES = {
    "autograd": "aneforge.autograd",
    "chips": "aneforge.chips",
    "ops": "aneforge.graph.builders",
    "special": "aneforge.special",
    "streaming": "aneforge.streaming",
}
_ELSEWHERE = (
    "CLIP Encoder GPT2 LlamaConfig LlamaPrefill ViT Vision Whisper cifar_cnn llm load_clip load_gpt2 load_llm "
    "load_resnet load_resnet18 load_vit load_whisper models moe prefill_block qwen35 sentence_transformers speculative"
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _ELSEWHERE.split():
        raise AttributeError(
            f"aneforge.{name}: this package loads no models from hubs and serves no language models. Export the model "
            "to ONNX, Core ML or torch.export, and read the file with af.load"
        )
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


# What completion offers first: the names that most people need, and the modules that hold the others by task.
_FIRST = (
    "AneforgeError Graph Model Program Study Tensor __version__ autograd check chips compare compile compile_all "
    "const estimate estimate_all evaluate evaluate_model export_coreml from_torch image_input input load load_program "
    "ops parameter partition plot report risks run save_netplist special split_model target tune"
)


def __dir__() -> list[str]:
    return list(map(str, _FIRST.split()))


class _Package(ModuleType):
    """Python gives a package each of its modules as an attribute; ``einsum`` is a function and a module."""

    @property
    def einsum(self) -> Any:
        return __getattr__("einsum")

    @einsum.setter
    def einsum(self, module: ModuleType) -> None: ...


sys.modules[__name__].__class__ = _Package


def _warn_of_foreign_package() -> None:
    import os

    from aneforge.errors import foreign_package

    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if message := foreign_package(folder):
        import warnings

        warnings.warn(message, RuntimeWarning, stacklevel=3)


_warn_of_foreign_package()

if not TYPE_CHECKING:  # type checkers read the imports above
    __all__ = sorted([*_HOME_OF, "__version__"])  # noqa: PLE0605 - a list all the same
