"""Many models on many chips: one small result file a model, so that a sweep is resumed by running it again.

``sweep`` runs it, ``merge`` makes one table of folders of results, ``compare`` says what differs between two.
"""

from __future__ import annotations

from typing import Any

from aneforge.lazy import first_use

HOMES = {"run": "Sweep sweep", "table": "Table merge", "diff": "compare"}


def __getattr__(name: str) -> Any:
    return first_use(__name__, HOMES, name)
