"""Core AI: assets of Apple's beta package ``coreai-core``."""

from __future__ import annotations

from functools import partial

from aneforge.graph.ops.host import Evaluate, register_language


def _evaluator() -> Evaluate:
    from aneforge.formats.coreai.table import KNOWN
    from aneforge.formats.importer.host import evaluate

    return partial(evaluate, known=KNOWN)


register_language("coreai", _evaluator)
