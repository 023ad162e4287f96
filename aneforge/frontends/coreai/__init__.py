"""Core AI: assets of Apple's beta package ``coreai-core``."""

from __future__ import annotations

from aneforge.graph.ops.host import register_language

register_language("coreai", "aneforge.frontends.coreai.known")
