"""``aneforge check``: one graph against one chip, several, or all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from aneforge.cli import say
from aneforge.cli.model_file import ModelFile, load_model
from aneforge.errors import AneforgeError
from aneforge.gate.preflight import OpReport, Preflight, PreflightAll, preflight_all
from aneforge.graph.graph import Graph
from aneforge.output import text
from aneforge.targets.families import Family
from aneforge.targets.listed import chip_list
from aneforge.targets.names import chip_label

GRADES = ("reject", "oversize", "risk", "decompose")
COLORS = {"reject": "red", "oversize": "red", "risk": "yellow", "decompose": "cyan"}


def run(model: str | ModelFile, chips: str, fail_on: str, as_json: bool, route: str = "conversion") -> int:
    """Print the table; 1 if a chip that was asked for does worse than allowed."""
    limits = _fail_on(fail_on)
    graph = load_model(model)
    asked = chip_list(chips)
    results = preflight_all(graph, asked, route)
    failed = [name for name, result in results.items() if any(result.counts[grade] for grade in limits)]
    if as_json:
        print(
            text.as_json(
                {"model": str(model), "ok": not failed, "failed": failed, "route": route, "targets": results.to_json()}
            )
        )
    else:
        _print(graph, results, failed, limits)
    return 1 if failed else 0


def _fail_on(asked: str) -> tuple[str, ...]:
    grades = tuple(part.strip() for part in asked.split(",") if part.strip())
    unknown = [grade for grade in grades if grade not in (*GRADES, "none")]
    if unknown or not grades:
        raise AneforgeError(f"--fail-on takes {', '.join(GRADES)} or none, separated by commas, not {asked!r}")
    return tuple(grade for grade in grades if grade != "none")


def _print(graph: Graph, results: PreflightAll, failed: list[str], limits: tuple[str, ...]) -> None:
    print(f"{len(graph.operations)} operations, {len(graph.weights)} stored weights{_by(results)}\n")
    rows = []
    for labels, result in _grouped(results):
        counts = result.counts
        cells = [counts[grade] or "-" for grade in ("native", "decompose", "reject", "oversize", "risk")]
        first, *rest = textwrap.wrap(", ".join(labels), 46)
        rows.append((first, _runs(result), *cells))
        rows += [(f"  {line}", "", "", "", "", "", "") for line in rest]
    print(text.columns(("chips", "runs", "native", "decompose", "reject", "oversize", "risk"), rows))
    _print_reasons(results)
    if failed:
        print(f"\nfails on {', '.join(limits)}: {', '.join(failed)}")


def _by(results: PreflightAll) -> str:
    """The route, where not every chip takes it."""
    routes = {result.route for result in results.values()}
    below = any(result.family is Family.OLDER for result in results.values())
    return f"; by the {routes.pop()} route" if len(routes) == 1 and (below or routes == {"direct"}) else ""


def _runs(result: Preflight) -> str:
    """Ops that came in as the host's are no chip's fault: the rest runs, as ``aneforge partition`` shows."""
    if result.ok:
        return "yes"
    refused = [*result.reject, *result.oversize]
    return "in part" if all(each.rule == "host-op" for each in refused) else "no"


def _grouped(results: PreflightAll) -> list[tuple[list[str], Preflight]]:
    """Chips with the same outcome share a line."""
    groups: dict[str, tuple[list[str], Preflight]] = {}
    for name, result in results.items():
        told = ((status, each) for status in GRADES for each in _worth_telling(result, status))
        key = repr([(status, each.name, each.rule, each.message) for status, each in told])
        key = key.replace(result.target.name, "?") + repr(result.counts)
        groups.setdefault(key, ([], result))[0].append(chip_label(name))
    return list(groups.values())


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
            print(f"\n{say.paint(status, COLORS[status])}: {shown} ({report.op} {list(report.shape)}, {report.where})")
            print(f"  {report.message or 'rewritten'} {report.evidence.label()}")
            if report.limit is not None and report.extent is not None:
                print(f"  limit {report.limit}, here {report.extent}")
            if report.bound is not None:
                print(f"  error: {report.bound}")
            if report.hint:
                print(f"  do: {report.hint}")
            print(f"  on: {', '.join(chips)}" + (f"; {report.other_route}" if report.other_route else ""))
        if len(reasons) > most:
            print(f"\n{status}: {len(reasons) - most} more reasons (--json lists all)")
