"""Import once: imported graphs by the content of their model file, on the disk of this machine.

A reader is asked once for each model file; every later command gets the graph from the cache and imports no reader.
The key of an entry covers all that changes the graph (``keys``). An entry is one file in a format of our own
(``entry``). The folder is bounded and may be used by several processes (``store``). What cannot be cached is imported
again.
"""

from __future__ import annotations

from aneforge.cache.load import depends_on, load_once
from aneforge.cache.place import off
from aneforge.cache.store import CacheReport, clear, report

__all__ = ["CacheReport", "clear", "depends_on", "load_once", "off", "report"]
