"""aneforge: an open compiler, simulator and cost model for the Apple Neural Engine, on any machine.

One compiler builds every chip; what differs is data. ``aneforge.target("M2 Pro")`` gives that data for one
chip, with the evidence behind each value.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aneforge.errors import AneforgeError
    from aneforge.targets import Fact, Family, Target, target

__version__ = "0.1.0"

# Nothing is imported until it is used: `import aneforge` reads no file and loads no library.
_HOME_OF = {
    "AneforgeError": "aneforge.errors",
    "Fact": "aneforge.targets",
    "Family": "aneforge.targets",
    "Target": "aneforge.targets",
    "target": "aneforge.targets",
}
__all__ = ["AneforgeError", "Fact", "Family", "Target", "__version__", "target"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
