"""``aneforge check``: one graph against one chip, several, or all of them."""

from __future__ import annotations

import runpy
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge.cli import text
from aneforge.errors import AneforgeError
from aneforge.frontends import load
from aneforge.gate.preflight import OpReport, Preflight, PreflightAll, preflight_all
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.targets.chip import all_targets
from aneforge.targets.families import supports_mil
from aneforge.targets.names import resolve

GRADES = ("reject", "oversize", "risk", "decompose")
DEFAULT_NAMES = ("graph", "out", "output", "model")


def run(model: str | ModelFile, chips: str, fail_on: str, as_json: bool) -> int:
    """Print the table; 1 if a chip that was asked for does worse than allowed."""
    limits = _fail_on(fail_on)
    graph = load_model(model)
    asked = _chips(chips)
    results = preflight_all(graph, asked)
    failed = [name for name, result in results.items() if any(result.counts[grade] for grade in limits)]
    if as_json:
        print(text.as_json({"model": str(model), "ok": not failed, "failed": failed, "targets": results.to_json()}))
    else:
        _print(graph, results, failed, limits)
    return 1 if failed else 0


def _fail_on(asked: str) -> tuple[str, ...]:
    grades = tuple(part.strip() for part in asked.split(",") if part.strip())
    unknown = [grade for grade in grades if grade not in (*GRADES, "none")]
    if unknown or not grades:
        raise AneforgeError(f"--fail-on takes {', '.join(GRADES)} or none, separated by commas, not {asked!r}")
    return tuple(grade for grade in grades if grade != "none")


def _chips(asked: str) -> list[str]:
    """``all`` is every target of silicon that programs reach; nothing runs below the floor of the route."""
    if asked.strip().casefold() == "all":
        silicon = [each for each in all_targets() if each.constructible and each.family5 is not None]
        return [each.name for each in silicon if each.family5 and supports_mil(each.family5)]
    names = [part.strip() for part in asked.split(",") if part.strip()]
    if not names:
        raise AneforgeError("--target needs a chip, for instance --target m1,m5 or --target all")
    return names


@dataclass(frozen=True)
class ModelFile:
    """What a command was asked to read, and the values of symbolic dimensions (``batch=1``)."""

    spec: str
    dims: Sequence[str] = ()

    def __str__(self) -> str:
        return self.spec


def load_model(model: str | ModelFile) -> Graph:
    """A graph from ``FILE.py:NAME`` (a tensor, a list, a graph, or a function that makes one), an ONNX file or a saved
    graph."""
    spec = str(model)
    dims = _dims(model.dims) if isinstance(model, ModelFile) else {}
    path, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    file = Path(path)
    if not file.is_file():
        raise AneforgeError(f"no file {path!r}; a model is FILE.py:NAME, an ONNX file or a saved graph")
    if file.suffix != ".py":
        return load(file, dims)
    if dims:
        raise AneforgeError("--dim is for files with symbolic dimensions, such as ONNX; a Python file says its own")
    return _as_graph(*_pick(_namespace(file), name, file), file)


def _dims(told: Sequence[str]) -> dict[str, int]:
    found = {}
    for each in told:
        name, _, size = each.rpartition("=")
        if not name or not size.isdigit() or int(size) < 1:
            raise AneforgeError(f"--dim takes NAME=SIZE, for instance --dim batch=1, not {each!r}")
        found[name] = int(size)
    return found


def _namespace(file: Path) -> dict[str, Any]:
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(file), run_name="aneforge_model")
    except AneforgeError:
        raise
    except (Exception, SystemExit) as error:
        raise AneforgeError(f"{file.name} could not be run: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(folder)


def _pick(namespace: dict[str, Any], name: str, file: Path) -> tuple[Any, str]:
    if name:
        if name not in namespace:
            graphs = [key for key, value in namespace.items() if isinstance(value, (Tensor, Graph))]
            raise AneforgeError(f"{file.name} has no {name!r}; it has {', '.join(graphs) or 'no graph'}")
        return namespace[name], name
    for candidate in DEFAULT_NAMES:
        if candidate in namespace:
            return namespace[candidate], candidate
    raise AneforgeError(f"{file.name} defines none of {', '.join(DEFAULT_NAMES)}; say {file.name}:NAME")


def _as_graph(value: Any, name: str, file: Path) -> Graph:
    if callable(value) and not isinstance(value, Tensor):
        try:
            value = value()
        except AneforgeError:
            raise
        except Exception as error:
            raise AneforgeError(f"{name}() in {file.name} failed: {type(error).__name__}: {error}") from None
    if isinstance(value, Graph):
        return value
    if isinstance(value, Tensor):
        return Graph([value])
    if isinstance(value, Sequence) and value and all(isinstance(each, Tensor) for each in value):
        return Graph(list(value))
    found = type(value).__name__
    raise AneforgeError(f"{name} in {file.name} is a {found}, not a tensor, a list of tensors or a graph")


def _print(graph: Graph, results: PreflightAll, failed: list[str], limits: tuple[str, ...]) -> None:
    print(f"{len(graph.operations)} operations, {len(graph.weights)} stored weights\n")
    rows = []
    for labels, result in _grouped(results):
        counts = result.counts
        cells = [counts[grade] or "-" for grade in ("native", "decompose", "reject", "oversize", "risk")]
        first, *rest = textwrap.wrap(", ".join(labels), 46)
        rows.append((first, "yes" if result.ok else "no", *cells))
        rows += [(f"  {line}", "", "", "", "", "", "") for line in rest]
    print(text.columns(("chips", "runs", "native", "decompose", "reject", "oversize", "risk"), rows))
    _print_reasons(results)
    if failed:
        print(f"\nfails on {', '.join(limits)}: {', '.join(failed)}")


def _grouped(results: PreflightAll) -> list[tuple[list[str], Preflight]]:
    """Chips with the same outcome share a line."""
    groups: dict[str, tuple[list[str], Preflight]] = {}
    for name, result in results.items():
        key = repr([(status, [str(each) for each in _worth_telling(result, status)]) for status in GRADES])
        key = key.replace(result.target.name, "?") + repr(result.counts)
        groups.setdefault(key, ([], result))[0].append(_label(name))
    return list(groups.values())


def _label(name: str) -> str:
    found = resolve(name)
    return name if found.kind != "compiler" or not found.target.chips else f"{name} ({found.target.chips[0]})"


def _worth_telling(result: Preflight, status: str) -> Sequence[OpReport]:
    return {
        "reject": result.reject,
        "oversize": result.oversize,
        "risk": result.risk,
        "decompose": result.decompose,
    }[status]


def _print_reasons(results: PreflightAll, most: int = 12) -> None:
    """Each reason once, with the nodes and chips it concerns."""
    for status in GRADES:
        reasons: dict[tuple[str, str], tuple[OpReport, list[str], list[str]]] = {}
        for name, result in results.items():
            for report in _worth_telling(result, status):
                key = (report.rule or report.op, report.message.replace(result.target.name, "?"))
                _, nodes, chips = reasons.setdefault(key, (report, [], []))
                if report.name not in nodes:
                    nodes.append(report.name)
                if name not in chips:
                    chips.append(name)
        for report, nodes, chips in list(reasons.values())[:most]:
            shown = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
            print(f"\n{status}: {shown} ({report.op} {list(report.shape)}, {report.where})")
            print(f"  {report.message or 'rewritten'} {report.evidence.label()}")
            if report.limit is not None and report.extent is not None:
                print(f"  limit {report.limit}, here {report.extent}")
            if report.hint:
                print(f"  do: {report.hint}")
            print(f"  on: {', '.join(chips)}" + (f"; {report.other_route}" if report.other_route else ""))
        if len(reasons) > most:
            print(f"\n{status}: {len(reasons) - most} more reasons (--json lists all)")
