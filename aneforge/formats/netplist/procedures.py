"""The entry points of a netplist: which network a procedure runs, and the ports that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge.chips import store
from aneforge.engine.native import Dimensions
from aneforge.errors import LoadError
from aneforge.files import spend
from aneforge.formats.netplist.document import PropertyListError, parse
from aneforge.formats.netplist.schema import Keys, collision, quoted, repeated, syntax

_SIZES = ("BatchSize", "InputChannels", "InputDepth", "InputHeight", "InputWidth")
_OFTEN_LEFT_OUT = ("BatchSize", "InputDepth")  # by people who write netplists; both are 1 then


@dataclass(frozen=True)
class InputPort:
    """Where a value enters: its symbol, its five dimensions, and how its channels are packed in memory."""

    name: str
    dimensions: Dimensions
    type: str
    interleave: int
    feeds: str | None
    """The unit that the file says it feeds."""


@dataclass(frozen=True)
class OutputPort:
    """Where a value leaves."""

    name: str
    unit: str | None
    """The unit that the file says it comes from."""
    channels: int | None
    interleave: int


@dataclass(frozen=True)
class Procedure:
    """One entry point, and the dictionary of the network that it runs."""

    name: str
    network: str
    inputs: tuple[InputPort, ...]
    outputs: tuple[OutputPort, ...]
    record: Any
    bindings: frozenset[str]
    """The output symbols of all procedures that run the network."""


def read_procedure(file: Path, function: str | None = None) -> Procedure:
    """The only procedure of a netplist, or the one that ``function`` names."""
    document = _document(file)
    networks = _networks(file.name, document)
    records = _procedures(file.name, document)
    name = _chosen(file.name, records, function)
    network, operations = _operation(records[name], networks)
    where = f"{file.name}: network {quoted(network)}"
    if not isinstance(document.get(network), dict):
        raise syntax(f"{where}: the network is listed but not described; add its dictionary")
    keys = records[name]
    inputs = tuple(_input(f"{keys.where}: input", record, operations) for record in keys.entries("InputList"))
    outputs = tuple(_output(f"{keys.where}: output", record, operations) for record in keys.entries("OutputList"))
    if not outputs:
        raise LoadError(f"{keys.where}: OutputList is empty; name a result")
    for ports, role in ((inputs, "input"), (outputs, "output")):
        if (twice := repeated(port.name for port in ports)) is not None:
            raise collision(keys.where, twice, [role, role])
    return Procedure(name, network, inputs, outputs, document[network], _bindings(records))


def _document(file: Path) -> dict[str, Any]:
    spend("plist_bytes", file.stat().st_size, file.name)
    try:
        document = parse(file.read_bytes(), file.name)
    except PropertyListError as error:
        raise LoadError(f"{file.name}: {error}") from None
    if not isinstance(document, dict) or "ProcedureList" not in document or "Networks" not in document:
        raise LoadError(f"{file.name}: not a netplist; a netplist has Networks and a ProcedureList")
    return document


def _networks(file: str, document: dict[str, Any]) -> list[str]:
    names = Keys(file, {"Networks": document["Networks"]}, "top").names("Networks")
    keys = Keys(file, document, "top", frozenset(names))
    newest = store.load("layers")["netplist"]["version"]["v"]
    version = keys.text("Version", newest)
    parts = version.split(".")
    if len(version) > 32 or not all(part.isascii() and part.isdigit() for part in parts):
        raise keys.wrong("Version", f"numbers with points, such as {newest}")
    if [int(part) for part in parts] > [int(part) for part in newest.split(".")]:
        raise LoadError(f"{file}: netplist version {version} is not supported; the newest is {newest}")
    for name in names:
        if name in ("Version", "Networks", "ProcedureList"):
            raise collision(file, name, ["a network", "a key of the schema"])
    if (twice := repeated(names)) is not None:
        raise collision(file, twice, ["network", "network"])
    return names


def _procedures(file: str, document: Mapping[str, Any]) -> dict[str, Keys]:
    if not isinstance(document["ProcedureList"], list) or not document["ProcedureList"]:
        raise syntax(f"{file}: ProcedureList must be a list of one procedure or more")
    procedures: dict[str, Keys] = {}
    for number, record in enumerate(document["ProcedureList"]):
        keys = Keys(f"{file}: procedure {number}", record, "procedure")
        name = keys.text("Name", "main")
        keys.where = f"{file}: procedure {quoted(name)}"
        if name in procedures:
            raise collision(file, name, ["procedure", "procedure"])
        procedures[name] = keys
    return procedures


def _chosen(file: str, procedures: Mapping[str, Keys], function: str | None) -> str:
    listed = ", ".join(quoted(name) for name in list(procedures)[:20])
    if function is None and len(procedures) > 1:
        raise LoadError(f"{file}: the netplist has {len(procedures)} procedures; choose one as function: {listed}")
    if function is not None and function not in procedures:
        raise LoadError(f"{file}: {function!r} is not a procedure of the file; choose one: {listed}")
    return next(iter(procedures)) if function is None else function


def _operation(procedure: Keys, networks: list[str]) -> tuple[str, set[str]]:
    """The network that a procedure runs, and the names of its operation."""
    listed = procedure.entries("OperationList")
    if len(listed) != 1:
        raise LoadError(
            f"{procedure.where}: OperationList has {len(listed)} operations; exactly one is supported, since the "
            "wiring between several is not published"
        )
    where = f"{procedure.where}: operation"
    if not isinstance(listed[0], dict) or not set(listed[0]) <= {"NetworkName", "OperationName"}:
        raise syntax(f"{where}: must be a dictionary of NetworkName and OperationName, not {quoted(listed[0])}")
    network = listed[0].get("NetworkName")
    if not isinstance(network, str) or network not in networks:
        choices = ", ".join(quoted(name) for name in networks[:20])
        raise syntax(f"{where}: NetworkName is {quoted(network)}; it must be one of Networks: {choices}")
    operation = listed[0].get("OperationName", network)
    if not isinstance(operation, str) or not operation:
        raise syntax(f"{where}: OperationName is {quoted(operation)}; it must be a text")
    return network, {operation}


def _bindings(procedures: Mapping[str, Keys]) -> frozenset[str]:
    records = [record for keys in procedures.values() for record in keys.record.get("OutputList", ())]
    names = (record.get("OutputName") for record in records if isinstance(record, dict))
    return frozenset(name for name in names if isinstance(name, str))


def _checked_operation(keys: Keys, operations: set[str]) -> None:
    operation = keys.text("OperationName", None)
    if operation is not None and operation not in operations:
        raise keys.wrong("OperationName", f"an operation of the procedure: {', '.join(operations)}")


def _input(where: str, record: Any, operations: set[str]) -> InputPort:
    keys = Keys(where, record, "input_port")
    name = keys.text("InputName")
    keys.where = f"{where} {quoted(name)}"
    _checked_operation(keys, operations)
    sizes = Dimensions(*(keys.whole(key, 1) if key in _OFTEN_LEFT_OUT else keys.whole(key) for key in _SIZES))
    kind = keys.element_type("InputType", ("Float16", "UInt8"))
    return InputPort(name, sizes, kind, keys.interleave("InputInterleave"), keys.text("Name", None))


def _output(where: str, record: Any, operations: set[str]) -> OutputPort:
    keys = Keys(where, record, "output_port")
    name = keys.text("OutputName") if "OutputName" in keys else keys.text("Name")
    keys.where = f"{where} {quoted(name)}"
    _checked_operation(keys, operations)
    keys.element_type("OutputType", ("Float16",))
    channels = keys.whole("OutputChannels") if "OutputChannels" in keys else None
    return OutputPort(name, keys.text("Name", None), channels, keys.interleave("OutputInterleave"))
