"""``aneforge cost-eval``: the cost model against measured times."""

from __future__ import annotations

from aneforge.cost.evaluate import NOT_FITTED, Figures, by, figures, read_rows
from aneforge.errors import AneforgeError
from aneforge.output import text

_HEADERS = ("rows", "median %", "mean %", "90th %", "factor", "bias %", "rank", "pairs")


def run(file: str, every: bool, as_json: bool) -> None:
    rows = read_rows(file)
    kept = rows if every else [row for row in rows if row.get("quality") not in NOT_FITTED]
    if not kept:
        raise AneforgeError(f"{file}: no row of a quality that can be compared; --all takes every row")
    groups = {
        key: {name: figures(each) for name, each in by(kept, key).items()} for key in ("chip", "scope", "op_class")
    }
    whole = figures(kept)
    if as_json:
        told = {key: {name: each.to_json() for name, each in found.items()} for key, found in groups.items()}
        print(text.as_json({"all": whole.to_json(), "left_out": len(rows) - len(kept), **told}))
        return
    print(text.columns(("", *_HEADERS), [("all", *_row(whole))]))
    for key, found in groups.items():
        print()
        print(text.columns((key, *_HEADERS), [(name, *_row(each)) for name, each in found.items()]))
    print("\nrank: Spearman's within sources; pairs: of equal FLOPs and a tenth apart, in the right order")
    if len(kept) < len(rows):
        print(f"\n{len(rows) - len(kept)} rows left out whose quality says that something else was measured (--all)")


def _row(found: Figures) -> tuple[object, ...]:
    errors = (f"{value:.1f}" for value in (found.median, found.mape, found.p90))
    pairs = f"{found.pairs[0]}/{found.pairs[1]}" if found.pairs[1] else "-"
    return found.rows, *errors, f"{found.factor:.2f}", f"{found.bias:+.1f}", f"{found.rank:.3f}", pairs
