"""``aneforge run``: a model on a simulated chip, arrays in and arrays out."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aneforge.cli import text
from aneforge.cli.check import load_model
from aneforge.errors import AneforgeError
from aneforge.model import Model
from aneforge.model import compile as compile_model

if TYPE_CHECKING:
    from aneforge.sim.executor import Run

SEED = 0


def run(model: str, chip: str, given: str | None, out: str | None, trace: bool, as_json: bool) -> None:
    """Compile, simulate, write what was asked for, and say how far the numbers can be trusted."""
    compiled = compile_model(load_model(model), target=chip)
    feeds = _random(compiled) if given is None else _read(given)
    done = compiled.run(feeds, trace=trace)
    if out is not None:
        _write(out, done.outputs)
    if as_json:
        print(text.as_json(_record(compiled, done, trace)))
        return
    for name, value in done.outputs.items():
        print(f"{name} {list(value.shape)} {_summary(value)}")
    print(", ".join(f"{count} ops {label}" for label, count in sorted(done.fidelity.items())))
    if given is None:
        print(f"inputs were drawn with seed {SEED}; --input FILE.npz gives your own", file=sys.stderr)
    if done.first_non_finite is not None:
        first = done.first_non_finite
        print(f"first non-finite: layer {first.layer}, {first.op} from {', '.join(first.sources)}")
    if trace:
        rows = [
            (each.layer, each.op, each.slot, each.fidelity, _summary(each.value), each.sources) for each in done.trace
        ]
        print(text.columns(("layer", "op", "slot", "fidelity", "values", "from"), rows))


def _summary(value: np.ndarray) -> str:
    if value.dtype == bool:
        return f"{int(value.sum())} of {value.size} true"
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    span = f"{finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}" if finite.size else "nothing finite"
    lost = wide.size - finite.size
    return f"{span}{f', {lost} infinite' if lost else ''}"


def _random(compiled: Model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    feeds: dict[str, np.ndarray] = {}
    for port in compiled.program.inputs:
        if port.initial is None:
            whole = port.dtype == "ui8"
            shape = port.user_shape
            feeds[port.name] = rng.integers(0, 256, shape) if whole else rng.standard_normal(shape)
    return feeds


def _read(file: str) -> dict[str, np.ndarray]:
    try:
        with np.load(file, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise AneforgeError(f"{file}: no file of named arrays (.npz): {error}") from None


def _write(file: str, outputs: dict[str, np.ndarray]) -> None:
    """Beside the file first, so that a failure leaves the old one."""
    path = Path(file)
    scratch = path.with_name(f".{path.name}.part.npz")
    try:
        np.savez(scratch, **outputs)  # type: ignore[arg-type]
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise AneforgeError(f"{file}: cannot be written ({error})") from None


def _record(compiled: Model, done: Run, trace: bool) -> dict[str, object]:
    record: dict[str, object] = {
        "target": compiled.target.name,
        "outputs": {
            name: {"shape": list(value.shape), "values": _summary(value)} for name, value in done.outputs.items()
        },
        "fidelity": done.fidelity,
        "first_non_finite": None if done.first_non_finite is None else list(done.first_non_finite.sources),
    }
    if trace:
        record["trace"] = [
            {
                "layer": each.layer,
                "op": each.op,
                "slot": each.slot,
                "fidelity": each.fidelity,
                "from": list(each.sources),
            }
            for each in done.trace
        ]
    return record
