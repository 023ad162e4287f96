"""Core AI: assets of Apple's beta package ``coreai-core``."""

from __future__ import annotations

from aneforge.graph.ops.host import Evaluate, register_language


def _evaluator() -> Evaluate:
    from aneforge.frontends.coreai.known import evaluate

    return evaluate


register_language("coreai", _evaluator)
