"""Work in processes of its own, within limits of time and memory: a bad model ends its process and nothing else.

``worker`` is the side of the parent, ``child`` the process itself, ``pool`` several of them with a list of tasks.
A task and its result are JSON. The parent's main module is never imported again, so scripts need no guard.
"""

from __future__ import annotations

from aneforge.workers.child import kind_of
from aneforge.workers.pool import cores, may_differ, run_all
from aneforge.workers.worker import Limits, Outcome, Worker

__all__ = ["Limits", "Outcome", "Worker", "cores", "kind_of", "may_differ", "run_all"]
