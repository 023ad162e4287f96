"""Many models on many chips: one small result file a model, so that a sweep is resumed by running it again.

``sweep`` runs it, ``merge`` makes one table of folders of results, ``compare`` says what differs between two.
"""

from __future__ import annotations

from typing import Any

_HOMES = {"sweep": "run", "Sweep": "run", "merge": "merging", "compare": "diff", "Table": "table"}


def __getattr__(name: str) -> Any:
    """Imported when it is first used."""
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
