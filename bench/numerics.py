"""How long it takes to say where chips disagree: ``python bench/numerics.py``.

``diverges`` and ``risks`` walk programs without running them; ``compare`` simulates. Times of one run each, the ratio
of the walk to one exact simulation of the same program, and how much wider the bounds are than what simulation shows.
Figures only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from networks import bert_encoder, resnet50

from aneforge.graph.graph import Graph
from aneforge.sim.compare import differences
from aneforge.sim.inputs import drawn_sample
from aneforge.sim.nodes import NodeValues
from aneforge.study import calibrate, compare, divergences_between, risks_on
from aneforge.study.model import compile as compile_model

PAIR = ("m1", "m5")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def main() -> None:
    for name, network in (("ResNet-50", resnet50), ("12-layer encoder", bert_encoder)):
        graph = Graph([network()])
        models = [compile_model(graph, target=chip) for chip in PAIR]
        feeds = drawn_sample(graph)
        simulated, _ = timed(lambda m=models, f=feeds: m[0].run(f))
        ranges = calibrate(graph, PAIR, [feeds])
        walked, found = timed(lambda g=graph, r=ranges: divergences_between(g, *PAIR, ranges=r))
        looked, risky = timed(lambda g=graph, r=ranges: risks_on(g, PAIR[0], r))
        compared, _ = timed(lambda g=graph, f=feeds: compare(g, PAIR, f))
        first, second = (NodeValues(model.program, model.run(feeds, trace=True)) for model in models)
        seen = {each.node: each.largest for each in differences(first, second)}
        wider = [
            each.bound / seen[each.node]
            for each in found.real
            if math.isfinite(each.bound) and seen.get(each.node, 0.0) > 0
        ]
        print(
            f"{name}, {' and '.join(PAIR)}: diverges {walked:.1f} s ({walked / simulated:.1f} times one simulation), "
            f"risks {looked:.1f} s, compare {compared:.1f} s; {len(found.real)} of {found.compared} nodes can differ, "
            f"{sum(each.may_be_lost for each in found)} can be lost, {len(risky)} risks"
        )
        if wider:
            print(f"  bounds over simulated differences: {median(wider):.0f} in the middle, {min(wider):.0f} at least")


if __name__ == "__main__":
    main()
