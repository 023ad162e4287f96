"""A large model as programs that load: where it can be cut, what each program may hold, what a token then costs."""

from __future__ import annotations

from typing import Any

from aneforge.lazy import first_use

HOMES = {
    "result": "ChipPlan SplitPlan",
    "runner": "SplitChain load_split",
    "splitting": "split_model",
}


def __getattr__(name: str) -> Any:
    return first_use(__name__, HOMES, name)
