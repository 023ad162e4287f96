"""``aneforge measure cost``: the estimates beside measured times."""

from __future__ import annotations

from aneforge import text
from aneforge.cli.notes import working
from aneforge.cost.evaluate import NOT_FITTED, Figures, by, figures, read_rows
from aneforge.errors import AneforgeError

_HEADERS = ("rows", "median %", "mean %", "90th %", "factor", "bias %", "rank", "pairs")


def run(file: str, every: bool, as_json: bool) -> None:
    rows = read_rows(file)
    kept = rows if every else [row for row in rows if row.get("quality") not in NOT_FITTED]
    if not kept:
        raise AneforgeError(f"{file}: no row is of a quality that can be compared. Use --all to take every row.")
    with working(f"estimating {len(kept)} rows"):
        groups = {
            key: {name: figures(members) for name, members in by(kept, key).items()}
            for key in ("chip", "scope", "op_class")
        }
        whole = figures(kept)
    if as_json:
        records = {key: {name: part.to_json() for name, part in parts.items()} for key, parts in groups.items()}
        print(text.as_json({"all": whole.to_json(), "left_out": len(rows) - len(kept), **records}))
        return
    print(text.columns(("", *_HEADERS), [("all", *_row(whole))]))
    for key, parts in groups.items():
        print()
        print(text.columns((key, *_HEADERS), [(name, *_row(part)) for name, part in parts.items()]))
    print("\nrank: Spearman's within sources; pairs: of equal FLOPs and a tenth apart, in the right order")
    if len(kept) < len(rows):
        print(f"\n{len(rows) - len(kept)} rows left out whose quality says that something else was measured (--all)")


def _row(part: Figures) -> tuple[object, ...]:
    errors = (f"{value:.1f}" for value in (part.median, part.mape, part.p90))
    pairs = f"{part.pairs[0]}/{part.pairs[1]}" if part.pairs[1] else "-"
    return part.rows, *errors, f"{part.factor:.2f}", f"{part.bias:+.1f}", f"{part.rank:.3f}", pairs
