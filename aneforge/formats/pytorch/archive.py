# pyright: reportMissingImports=false
"""Read ``.pt2`` archives of ``torch.export.save`` without trusting them.

PyTorch's own loader unpickles objects of the archive and loads compiled code. This reader treats the archive as data:
the program is JSON, the weights are bytes that stay in the file and are mapped, and whatever must be unpickled or run
is refused.
"""

from __future__ import annotations

import json
import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.files import check_archive
from aneforge.formats.pytorch.naming import plain_trace
from aneforge.formats.pytorch.structures import plain_structure

_DAMAGED = (RuntimeError, struct.error, zlib.error)  # RuntimeError: encrypted, or nested too deeply
_MOST_TEXT = 1 << 29  # real programs are far smaller
_MOST_RATIO = 200
_CALLS = re.compile(r"torch\.ops\.(aten|quantized_decomposed)\.\w+(\.\w+)?|_operator\.\w+|math\.\w+|torch\.sym_\w+")
_WRAPPERS = re.compile(r"torch\.ops\.higher_order\.\w+|torch\.(_C\.)?_(set_grad_enabled|enter_autocast|exit_autocast)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SYMBOL = r"Symbol\('[a-z]{1,3}\d+'(?:, [a-z]+=(?:True|False|None))*\)"
_FUNCTIONS = (
    "Abs Add CeilDiv CeilToInt CleanDiv Equality FloatTrueDiv FloorDiv FloorToInt GreaterThan Identity IntTrueDiv "
    "LessThan Max Min Mod ModularIndexing Mul Pow PowByNatural PythonMod StrictGreaterThan StrictLessThan ToFloat "
    "TruncToInt Unequality Where ceiling floor"
).replace(" ", "|")
_EXPRESSION = re.compile(
    rf"(?:{_SYMBOL}|Integer\(-?\d{{1,18}}\)|Rational\(-?\d{{1,9}}, \d{{1,9}}\)|"
    rf"Float\('-?\d{{1,18}}(?:\.\d{{1,18}})?', precision=53\)|(?:{_FUNCTIONS})\(|true|false|[), ])+"
)
"""Sizes as PyTorch writes them. ``PowByNatural`` stops at the largest size; ``Pow`` does not, so it is counted."""
_SMALL_POWER = re.compile(r".+, Integer\([1-4]\)")
_MOST_POWERS = 4  # in one expression: a power of a power of a power of a power has some thousand digits

_MOST_EXPRESSION = 2000
_IMPORTS = ("__enum__", "default_factory", "\\u")
GROUPED_PRODUCT = "torch.ops.transformers.grouped_mm_fallback.default"
"""The one op that is not PyTorch's own: see ``grouped.py``."""
_FORBIDDEN = frozenset(("torch.ops.aten.from_file.default", "_operator.methodcaller", "_operator.attrgetter"))


def program_in(file: Path) -> tuple[Any, Callable[[], None]]:
    """Return the exported program of a file, and a function that releases the memory of weights that were read."""
    try:
        with zipfile.ZipFile(file) as archive:
            check_archive(archive, file.name)
            return _program(file, archive)
    except zipfile.BadZipFile as error:
        raise LoadError(
            f"{file.name}: not an exported program (not an archive: {error}); torch.export.save() writes one"
        ) from None
    except (OSError, EOFError, LookupError, TypeError, ValueError, AttributeError, *_DAMAGED) as error:
        raise LoadError(f"{file.name}: the archive cannot be read ({type(error).__name__}: {error})") from None


def _program(file: Path, archive: zipfile.ZipFile) -> tuple[Any, Callable[[], None]]:
    entries = {name.partition("/")[2]: info for name, info in _entries(archive).items()}
    _check_entries(file, entries)
    text = _read_text(file, archive, entries["models/model.json"])
    program = json.loads(text)
    _check_program(file, program)
    data = np.memmap(file, np.uint8, "c")
    weights = _tensors(file, archive, entries, "data/weights/model_weights_config.json", data)
    constants = _tensors(file, archive, entries, "data/constants/model_constants_config.json", data)

    def release() -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            data._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]

    return _deserialise(file, json.dumps(program).encode(), weights, constants), release


def _entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    return {info.filename: info for info in archive.infolist()}


def _check_entries(file: Path, entries: dict[str, zipfile.ZipInfo]) -> None:
    """Refuse other archives of PyTorch, and entries that are not allowed."""
    if "models/model.json" in entries:
        if any(name.startswith("data/aotinductor/") for name in entries):
            raise LoadError(
                f"{file.name}: the archive has compiled code, which is not run; save the program without it"
            )
        return
    if any(name.startswith("models/") for name in entries):
        programs = ", ".join(sorted(name[7:-5] for name in entries if name.startswith("models/")))
        raise LoadError(
            f"{file.name}: the archive has the programs {programs}, but not 'model'; save each program in its own file"
        )
    if "serialized_exported_program.json" in entries or any("serialized_" in name for name in entries):
        message = "an exported program in the format of PyTorch 2.7 and before; save it again with a newer PyTorch"
    elif any(name.startswith("code/") for name in entries) or "constants.pkl" in entries:
        message = "TorchScript, not an exported program; export the module with torch.export.export(module, inputs)"
    elif "data.pkl" in entries:
        message = (
            "a file of torch.save() (a state dict or a pickled module), not an exported program; build the module, "
            "load the state dict, and use torch.export.save(torch.export.export(module, inputs), path)"
        )
    else:
        message = "not an exported program; torch.export.save() writes one"
    raise LoadError(f"{file.name}: {message}")


def _read_text(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.file_size > _MOST_TEXT or info.file_size > max(1, info.compress_size) * _MOST_RATIO:
        raise LoadError(
            f"{file.name}: {info.filename} has {info.file_size:,} bytes when unpacked; the limit is {_MOST_TEXT:,}, "
            f"and {_MOST_RATIO} times its packed size"
        )
    return archive.read(info)


def _check_program(file: Path, program: Any) -> None:
    """Check that the program names only ATen ops and arithmetic on sizes.

    PyTorch evaluates the expressions of sizes, runs the code of guards, writes names into code that it runs, and
    imports the types that a structure names, unless they are tuples (``structures.py``). So each of these must match
    what ``torch.export.save`` writes. Guards only check inputs; they are removed. Of a trace of the model's own code
    only the last line is kept.
    """
    if not isinstance(program, dict) or not isinstance(program.get("graph_module"), dict):
        raise LoadError(
            f"{file.name}: models/model.json is not an exported program; save it again with torch.export.save()"
        )
    program["guards_code"] = []
    pending: list[Any] = [program]
    while pending:
        record = pending.pop()
        if isinstance(record, dict):
            if "stack_trace" in record:
                record["stack_trace"] = plain_trace(record["stack_trace"])
            for key in ("in_spec", "out_spec"):
                if isinstance(record.get(key), str):
                    record[key] = plain_structure(record[key])
            for key, value in record.items():
                if isinstance(value, str):
                    _check_text(file, record, key, value)
            pending.extend(value for value in record.values() if isinstance(value, (dict, list)))
            names = record.get("forward_arg_names") or []
            if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
                raise LoadError(
                    f"{file.name}: an input name is not an identifier; use letters, digits and underscores"
                )
        else:
            pending.extend(value for value in record if isinstance(value, (dict, list)))


def _check_text(file: Path, record: dict[str, Any], key: str, value: str) -> None:
    if (key == "target" and "inputs" in record) or key == "as_operator":
        allowed = _CALLS.fullmatch(value) or _WRAPPERS.fullmatch(value) or value == GROUPED_PRODUCT
        if value in _FORBIDDEN or not allowed:
            raise LoadError(
                f"{file.name}: {record.get('name') or 'a node'} ({value}): not an ATen op; only ATen ops are allowed"
            )
    elif key == "expr_str":
        if len(value) > _MOST_EXPRESSION or not _EXPRESSION.fullmatch(value) or not _has_small_powers(value):
            raise LoadError(
                f"{file.name}: the size {value[:60]!r} is not an expression of sizes that torch.export.save() writes; "
                "save the program again"
            )
    elif key == "name" and value and not _NAME.fullmatch(value):
        raise LoadError(
            f"{file.name}: the node name {value[:60]!r} is not an identifier; use letters, digits and underscores"
        )
    elif key in ("in_spec", "out_spec") and any(word in value for word in _IMPORTS):
        raise LoadError(
            f"{file.name}: the inputs or outputs have a type that must be imported, which is not allowed; use "
            "tensors, lists, tuples and dicts"
        )


def _has_small_powers(expression: str) -> bool:
    """Whether every power in an expression has a small known exponent, and there are few of them."""
    starts = [match.end() for match in re.finditer(r"\bPow\(", expression)]
    return len(starts) <= _MOST_POWERS and all(_SMALL_POWER.fullmatch(_within(expression, at)) for at in starts)


def _within(expression: str, start: int) -> str:
    """The arguments of a function whose first one starts at a place."""
    depth = 1
    for place in range(start, len(expression)):
        depth += {"(": 1, ")": -1}.get(expression[place], 0)
        if depth == 0:
            return expression[start:place]
    return ""


def _tensors(
    file: Path, archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], config: str, data: np.ndarray
) -> dict[str, Any]:
    """Return the weights by name; their bytes stay in the file."""
    import torch

    folder = config.rpartition("/")[0] + "/"
    if config not in entries:
        if any(name.startswith(folder) and name.endswith(".pt") for name in entries):
            raise LoadError(
                f"{file.name}: the weights are pickled (an older format), which is not allowed; save the program "
                "again with a newer PyTorch"
            )
        raise LoadError(f"{file.name}: {config} is missing; save the program again with torch.export.save()")
    tensors, buffers = {}, {}
    for name, record in json.loads(_read_text(file, archive, entries[config]))["config"].items():
        where, meta = record["path_name"], record["tensor_meta"]
        if record.get("use_pickle") or meta is None or folder + where not in entries:
            problem = "pickled, and a pickle can run code" if folder + where in entries else "not in the archive"
            raise LoadError(f"{file.name}: {name!r} is {problem}; save the program with plain tensors")
        if where not in buffers:
            buffers[where] = _read_bytes(file, archive, entries[folder + where], data)
        tensors[name] = _tensor(torch, buffers[where], meta, bool(record.get("is_param")))
    return tensors


def _read_bytes(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, data: np.ndarray) -> np.ndarray:
    """Return the bytes of an entry; uncompressed ones are mapped, not read."""
    if info.compress_type != zipfile.ZIP_STORED:
        return np.frombuffer(bytearray(_read_text(file, archive, info)), np.uint8)
    name, extra = struct.unpack("<HH", data[info.header_offset + 26 : info.header_offset + 30].tobytes())
    offset = info.header_offset + 30 + name + extra
    if offset + info.file_size > data.size:
        raise ValueError(f"{info.filename} ends after the end of the file")
    return data[offset : offset + info.file_size]


def _tensor(torch: Any, raw: np.ndarray, meta: dict[str, Any], parameter: bool) -> Any:
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE

    kind = _SERIALIZE_TO_TORCH_DTYPE[meta["dtype"]]
    sizes, strides = ([int(number["as_int"]) for number in meta[key]] for key in ("sizes", "strides"))
    offset = int(meta["storage_offset"]["as_int"])
    if min((*sizes, *strides, offset), default=0) < 0:
        raise ValueError("a tensor has a negative size, stride or offset")
    flat = torch.from_numpy(raw).view(kind) if raw.size else torch.empty(0, dtype=kind)
    reach = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
    if all(sizes) and reach > flat.numel():
        raise ValueError(f"a tensor of shape {sizes} needs more than its {raw.size} bytes")
    tensor = torch.as_strided(flat, sizes, strides, offset)
    return torch.nn.Parameter(tensor, requires_grad=False) if parameter and kind.is_floating_point else tensor


def _deserialise(file: Path, text: bytes, weights: dict[str, Any], constants: dict[str, Any]) -> Any:
    from torch._export.serde import schema
    from torch._export.serde.serialize import ExportedProgramDeserializer, _bytes_to_dataclass

    from aneforge.formats.pytorch.host import declare_grouped_product

    declare_grouped_product()
    try:
        program = _bytes_to_dataclass(schema.ExportedProgram, text)
        return ExportedProgramDeserializer().deserialize(program, weights, constants, None)
    except LoadError:
        raise
    except Exception as error:  # a damaged program can raise anything in the loader
        line = (str(error).strip().splitlines() or ["no message"])[0][:200]
        raise LoadError(f"{file.name}: the exported program cannot be read ({type(error).__name__}: {line})") from None
