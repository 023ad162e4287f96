"""How a program's inputs and outputs are nested, without the classes of the library that exported it.

PyTorch writes the nesting as text that names the class of every container: a record of ``transformers``, a cache, a
dataclass. Loading asks for that class, which is not there, and which a stranger's file must not import. Only the
order of the tensors inside matters here, so every container that is not Python's own becomes a tuple.
"""

from __future__ import annotations

import json
from typing import Any

_TUPLE = "builtins.tuple"
_PLAIN = frozenset((_TUPLE, "builtins.list", "builtins.dict", "collections.OrderedDict", "collections.defaultdict"))
"""Containers that are read as they are. A defaultdict is refused later, because it names a function."""


def plain_structure(text: str) -> str:
    """The text of a nesting in which every record of a library is a tuple of what it holds, in its order."""
    document = json.loads(text)
    if not (isinstance(document, list) and len(document) == 2):
        return text
    changed = False
    pending: list[Any] = [document[1]]
    while pending:
        container = pending.pop()
        if not isinstance(container, dict) or container.get("type") is None:
            continue
        if container["type"] not in _PLAIN:
            container["type"], container["context"] = _TUPLE, "null"
            changed = True
        pending.extend(container.get("children_spec") or [])
    return json.dumps(document) if changed else text
