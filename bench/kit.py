"""Speed of the kit: how long the whole folder takes to write, how large it is, and how long ``contribute`` takes.

``python bench/kit.py`` writes into a temporary folder; the results that are read are those of a stand-in for a Mac.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))


def main() -> None:
    import kit_standin  # type: ignore[import-not-found]

    from aneforge.reports.kit.experiments import experiments
    from aneforge.reports.kit.judge import judged
    from aneforge.reports.kit.predict import _program
    from aneforge.reports.kit.reach import CHIPS
    from aneforge.reports.kit.results import read_results
    from aneforge.reports.kit.rows import silicon_rows
    from aneforge.reports.kit.write import write_kit

    with tempfile.TemporaryDirectory() as place:
        begin = time.perf_counter()
        kit = write_kit(Path(place) / "kit", list(experiments().values()), CHIPS)
        took = time.perf_counter() - begin
        size = f"{kit.bytes / 1e6:.1f} MB, {kit.cases} models, {len(CHIPS)} chips"
        print(f"write: {took:.1f} s, {size} (bars: 60 s, 20 MB)")
        print(f"run on a Mac: about {kit.minutes} minutes by design (bar: 10)")
        for chip in CHIPS:
            for programs in (False, True):
                document = kit_standin.results(chip, programs=programs)
                file = kit_standin.written(document, Path(place) / "results.json")
                _program.cache_clear()
                begin = time.perf_counter()
                findings = judged(read_results(file))
                silicon_rows(findings, "bench")
                took = time.perf_counter() - begin
                size = file.stat().st_size / 1e6
                with_them = "with programs" if programs else "without programs"
                print(f"contribute {chip} {with_them}: {took:.2f} s, {size:.1f} MB (bar: 2 s)")


if __name__ == "__main__":
    main()
