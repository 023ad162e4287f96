"""The environment variables that aneforge reads: one table, which ``aneforge doctor`` prints."""

from __future__ import annotations

from aneforge.budgets import LIMITS

SETTINGS = {
    "ANEFORGE_TARGET": "the chip of this machine",
    "ANEFORGE_TARGETS": "the chips of commands that name none (m1..m6)",
    "ANEFORGE_OS": "the version of macOS that verdicts are about (the newest known)",
    "ANEFORGE_NATIVE": "0 turns the native kernel off",
    "ANEFORGE_NATIVE_PATH": "the instruction set of the native kernel",
    "ANEFORGE_THREADS": "how many threads a simulation may use",
    "ANEFORGE_NO_CACHE": "1 imports every model file again, and stores nothing",
    "ANEFORGE_CACHE_DIR": "the folder of imported models",
    "ANEFORGE_CACHE_SIZE": "how many bytes of imported models are kept (2G)",
    "ANEFORGE_TRACEBACK": "1 prints the Python traceback of an error",
    **{f"ANEFORGE_MAX_{name.upper()}": f"limit of a model file: {limit.counts}" for name, limit in LIMITS.items()},
    "XDG_CACHE_HOME": "the folder of caches, if ANEFORGE_CACHE_DIR is not set",
    "NO_COLOR": "any value turns colours off",
    "TERM": "dumb turns colours off",
}
"""What each variable does, by its name."""
