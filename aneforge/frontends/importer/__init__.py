"""One importer for all formats: records in, the graph out.

``importer`` walks the records, ``ports`` makes inputs, outputs and states, ``control`` settles branches and loops,
``language`` says what a format adds, and ``host`` writes down what the host computes.
"""

from __future__ import annotations

from aneforge.graph.ops.host import Evaluate, register_language


def _evaluator() -> Evaluate:
    from aneforge.frontends.importer.host import evaluate

    return evaluate


register_language("mil", _evaluator)
