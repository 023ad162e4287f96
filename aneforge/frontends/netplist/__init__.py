"""Netplists: the property lists that the engine's compiler reads. Their units become ops of the graph.

The keys are those of table 22.6 and layers.json ``netplist``. Anything that the published schema leaves open is
refused, except the order of a kernel's numbers (U52).
"""

from __future__ import annotations

import plistlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from aneforge.frontends import LoadError
from aneforge.frontends.netplist.network import Network
from aneforge.graph.graph import Graph
from aneforge.targets import store

__all__ = ["read"]


def read(file: Path) -> Graph:
    """The graph of the only procedure of a netplist."""
    try:
        document = plistlib.loads(file.read_bytes())
    except (ExpatError, ValueError, LookupError, OverflowError, RecursionError) as error:
        raise LoadError(f"{file.name}: not a property list ({error})") from None
    if not isinstance(document, dict) or "ProcedureList" not in document or "Networks" not in document:
        raise LoadError(f"{file.name}: not a netplist; a netplist has Networks and a ProcedureList")
    newest = store.load("layers")["netplist"]["version"]["v"]
    version = str(document.get("Version", newest))
    if _parts(version) > _parts(newest):
        raise LoadError(f"{file.name}: netplist version {version} is not supported; the newest is {newest}")
    procedures = document["ProcedureList"]
    if not isinstance(procedures, list) or len(procedures) != 1:
        count = len(procedures) if isinstance(procedures, list) else "no"
        raise LoadError(f"{file.name}: the netplist has {count} procedures; exactly one is supported")
    return _procedure(file, document, procedures[0])


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def _procedure(file: Path, document: Mapping[str, Any], procedure: Any) -> Graph:
    inputs, order, outputs = (_list(file, procedure, key) for key in ("InputList", "OperationList", "OutputList"))
    names = {operation.get("NetworkName") for operation in order} or set(document["Networks"])
    if len(names) != 1 or not isinstance(document.get(next(iter(names))), dict):
        raise LoadError(
            f"{file.name}: the procedure names {', '.join(map(str, names))}; it must name one network of the file"
        )
    network = Network(file, document[next(iter(names))])
    for port in inputs:
        network.port(port)
    for name in network.units:
        network.unit(name)
    results = [network.output(port) for port in outputs]
    if not results:
        raise LoadError(f"{file.name}: the procedure has no outputs")
    return Graph(results)


def _list(file: Path, procedure: Any, key: str) -> list[Any]:
    value = procedure.get(key, []) if isinstance(procedure, dict) else None
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise LoadError(f"{file.name}: {key} of the procedure must be a list of dictionaries")
    return value
