"""``aneforge estimate``: how long a model takes on each chip, and what that rests on."""

from __future__ import annotations

from aneforge.cli.check import chips_of
from aneforge.cli.model_file import ModelFile, load_model
from aneforge.compiler.compile import compile_all
from aneforge.cost.estimate import Estimate, estimate_program
from aneforge.errors import AneforgeError
from aneforge.report import text
from aneforge.targets.names import target as find_target

_LAYERS = 20


def run(model: str | ModelFile, chips: str, scope: str, layers: bool, as_json: bool) -> None:
    graph = load_model(model)
    asked = chips_of(chips)
    compiled = compile_all(graph, list(dict.fromkeys(find_target(each).name for each in asked)))
    found: dict[str, Estimate] = {}
    refused: dict[str, str] = {}
    for each in asked:
        name = find_target(each).name
        if name in compiled.refused:
            refused[each] = str(compiled.refused[name])
        else:
            found[each] = estimate_program(compiled[name], scope)
    if as_json:
        print(text.as_json({"estimates": {name: each.to_json() for name, each in found.items()}, "refused": refused}))
        return
    if not found:
        raise AneforgeError(f"no program for {', '.join(refused)}: {next(iter(refused.values()))}")
    print(text.columns(("chip", "us", "from", "to", "on the engine", "mostly", "basis"), _rows(found)))
    for name, why in refused.items():
        print(f"\n{name}: no program: {why}")
    if layers:
        for name, each in found.items():
            print(f"\n{name}, the layers that take longest:")
            longest = sorted(each.layers, key=lambda layer: -layer.us)[:_LAYERS]
            rows = [(one.number, one.op, f"{one.us:.1f}", one.bound, ", ".join(one.sources[:3])) for one in longest]
            print(text.columns(("layer", "op", "us", "bound", "from"), rows))


def _rows(found: dict[str, Estimate]) -> list[tuple[object, ...]]:
    rows = []
    for name, each in found.items():
        low, high = each.interval
        share = next(iter(each.bounds()), "-")
        basis = (
            f"fitted to {each.basis.rows} rows"
            if each.basis.measured
            else f"extrapolated from {each.basis.taken_from}"
        )
        rows.append((name, f"{each.us:.0f}", f"{low:.0f}", f"{high:.0f}", f"{each.engine_us:.0f}", share, basis))
    return rows
