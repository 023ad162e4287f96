"""What a chip is: names, families, the hardware-abstraction table, op floors, limits, formats, cost tables.

One compiler builds every chip; what differs is data, and all of it is reached through here. Data files are
read when first asked for; importing this package reads none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aneforge.targets.chip import Target, all_targets, target_names
from aneforge.targets.evidence import Conflict, Fact, conflict, conflicts, sources
from aneforge.targets.families import MIN_FAMILY, Family, Family8, supports_mil
from aneforge.targets.hal import Hal, HalField
from aneforge.targets.limits import axis_limit, global_limit, limit, limit_fact
from aneforge.targets.names import Resolution, arch_for_family, family_of_arch, resolve, runtime_arch, target
from aneforge.targets.numeric_facts import numeric_fact, slice_saturates
from aneforge.targets.ops import BackendOp, backend_op, backend_ops, floor, op_names, op_routes, op_status
from aneforge.targets.streams import native_streams, stream_fact

if TYPE_CHECKING:
    from aneforge.targets.costs import CostCurve, DeviceInfo, cost_curve, device_info
    from aneforge.targets.formats import FormatSet, ImageFormat, image_format, image_formats
    from aneforge.targets.generations import Generation, generation
    from aneforge.targets.host import TargetDetectionWarning, detect_family

# Imported when they are first used: a check of a graph needs none of them, and importing takes time.
_HOMES = {
    "aneforge.targets.costs": "CostCurve DeviceInfo cost_curve device_info",
    "aneforge.targets.formats": "FormatSet ImageFormat image_format image_formats",
    "aneforge.targets.generations": "Generation generation",
    "aneforge.targets.host": "TargetDetectionWarning detect_family",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "MIN_FAMILY",
    "BackendOp",
    "Conflict",
    "CostCurve",
    "DeviceInfo",
    "Fact",
    "Family",
    "Family8",
    "FormatSet",
    "Generation",
    "Hal",
    "HalField",
    "ImageFormat",
    "Resolution",
    "Target",
    "TargetDetectionWarning",
    "all_targets",
    "arch_for_family",
    "axis_limit",
    "backend_op",
    "backend_ops",
    "conflict",
    "conflicts",
    "cost_curve",
    "detect_family",
    "device_info",
    "family_of_arch",
    "floor",
    "generation",
    "global_limit",
    "image_format",
    "image_formats",
    "limit",
    "limit_fact",
    "native_streams",
    "numeric_fact",
    "op_names",
    "op_routes",
    "op_status",
    "resolve",
    "runtime_arch",
    "slice_saturates",
    "sources",
    "stream_fact",
    "supports_mil",
    "target",
    "target_names",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
