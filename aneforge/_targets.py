"""The cross-chip names of the seed page: ``from aneforge import _targets as tg``. A thin re-export."""

from __future__ import annotations

from aneforge.chips.families import MIN_FAMILY, Family, supports_mil
from aneforge.chips.hal import has_texture_engine
from aneforge.chips.host import TargetDetectionWarning, detect_family
from aneforge.chips.limits import FP16_SLICE_SAT, limit
from aneforge.chips.names import arch_for_family, family_of_arch
from aneforge.chips.ops import op_status
from aneforge.chips.streams import native_streams
from aneforge.numerics.divergence import predict_fp16_divergence
from aneforge.study.preflight import OpReport, Preflight
from aneforge.study.preflighting import preflight

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
