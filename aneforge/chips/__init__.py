"""What a chip is: names, families, the hardware-abstraction table, op floors, limits, formats, cost tables.

One compiler builds every chip; what differs is data, and all of it is reached through here. Data files are
read when first asked for; importing this package reads none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aneforge.chips.chip import Target, all_targets, target_names
from aneforge.chips.evidence import Conflict, Fact, conflict, conflicts, sources
from aneforge.chips.families import MIN_FAMILY, Family, Family8, supports_mil
from aneforge.chips.hal import Hal, HalField
from aneforge.chips.limits import axis_limit, global_limit, limit, limit_fact, numeric_fact, slice_saturates
from aneforge.chips.names import Resolution, arch_for_family, family_of_arch, resolve, runtime_arch, target
from aneforge.chips.ops import BackendOp, backend_op, backend_ops, floor, op_names, op_routes, op_status
from aneforge.chips.streams import native_streams, stream_fact
from aneforge.lazy import first_use

if TYPE_CHECKING:
    from aneforge.chips.costs import CostCurve, DeviceInfo, cost_curve, device_info
    from aneforge.chips.formats import FormatSet, ImageFormat, image_format, image_formats
    from aneforge.chips.generations import Generation, generation
    from aneforge.chips.host import TargetDetectionWarning, detect_family

# Imported when they are first used: a check of a graph needs none of them, and importing takes time.
HOMES = {
    "costs": "CostCurve DeviceInfo cost_curve device_info",
    "formats": "FormatSet ImageFormat image_format image_formats",
    "generations": "Generation generation",
    "host": "TargetDetectionWarning detect_family",
}


def __getattr__(name: str) -> Any:
    return first_use(__name__, HOMES, name)
