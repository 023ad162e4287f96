"""``aneforge cache``: what the cache of imported models holds, and a way to empty it."""

from __future__ import annotations

from aneforge import text
from aneforge.formats import cache
from aneforge.text import plural


def run(clear: bool, as_json: bool) -> None:
    removed = cache.clear() if clear else None
    report = cache.report()
    if as_json:
        print(text.as_json({**report.to_json(), **({} if removed is None else {"removed": removed})}))
        return
    if removed is not None:
        print(f"removed {plural(removed, 'model')}")
    print(report)
