"""The cross-chip names of the seed page: ``from aneforge import _targets as tg``. A thin re-export."""

from __future__ import annotations

from aneforge.divergence.verdicts import predict_fp16_divergence
from aneforge.study.preflight import OpReport, Preflight
from aneforge.study.preflighting import preflight
from aneforge.targets.families import MIN_FAMILY, Family, supports_mil
from aneforge.targets.hal import has_texture_engine
from aneforge.targets.host import TargetDetectionWarning, detect_family
from aneforge.targets.limits import limit
from aneforge.targets.names import arch_for_family, family_of_arch
from aneforge.targets.numeric_facts import FP16_SLICE_SAT
from aneforge.targets.ops import op_status
from aneforge.targets.streams import native_streams

__all__ = [
    "FP16_SLICE_SAT",
    "MIN_FAMILY",
    "Family",
    "OpReport",
    "Preflight",
    "TargetDetectionWarning",
    "arch_for_family",
    "detect_family",
    "family_of_arch",
    "has_texture_engine",
    "limit",
    "native_streams",
    "op_status",
    "predict_fp16_divergence",
    "preflight",
    "supports_mil",
]
