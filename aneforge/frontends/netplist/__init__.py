"""Netplists: the property list that the engine's compiler reads, its units as ops of the graph.

The keys are those of table 22.6 and layers.json ``netplist``. What the published schema leaves open is refused, but
for the order of a kernel's numbers (U52).
"""

from __future__ import annotations

import plistlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from aneforge.frontends import LoadError
from aneforge.frontends.netplist.network import Network
from aneforge.frontends.netplist.units import RULES, UNREAD
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
        raise LoadError(f"{file.name}: not a netplist: it has no Networks and ProcedureList")
    newest = store.load("layers")["netplist"]["version"]["v"]
    version = str(document.get("Version", newest))
    if _parts(version) > _parts(newest):
        raise LoadError(f"{file.name}: netplist version {version}; read are versions up to {newest}")
    procedures = document["ProcedureList"]
    if not isinstance(procedures, list) or len(procedures) != 1:
        count = len(procedures) if isinstance(procedures, list) else "no"
        raise LoadError(f"{file.name}: {count} procedures; a netplist with exactly one is read")
    return _procedure(file, document, procedures[0])


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(each) if each.isdigit() else 0 for each in version.split("."))


def _procedure(file: Path, document: Mapping[str, Any], told: Any) -> Graph:
    inputs, order, outputs = (_list(file, told, key) for key in ("InputList", "OperationList", "OutputList"))
    names = {each.get("NetworkName") for each in order} or set(document["Networks"])
    if len(names) != 1 or not isinstance(document.get(next(iter(names))), dict):
        raise LoadError(f"{file.name}: one network is read, the procedure names {', '.join(map(str, names))}")
    network = Network(file, document[next(iter(names))], RULES, UNREAD)
    for port in inputs:
        network.port(port)
    for name in network.units:
        network.unit(name)
    found = [network.output(port) for port in outputs]
    if not found:
        raise LoadError(f"{file.name}: the procedure has no outputs")
    return Graph(found)


def _list(file: Path, told: Any, key: str) -> list[Any]:
    value = told.get(key, []) if isinstance(told, dict) else None
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise LoadError(f"{file.name}: {key} of the procedure is no list of records")
    return value
