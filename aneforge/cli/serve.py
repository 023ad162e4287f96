"""``aneforge serve``: a local page where a model is dropped and its report appears."""

from __future__ import annotations

import json
import signal
import sys
from types import FrameType

from aneforge.cli import say
from aneforge.errors import AneforgeError
from aneforge.files import bytes_of
from aneforge.reports.serve.server import Server
from aneforge.reports.workers import WorkerLimits


def run(host: str, port: int, target: str, limits: WorkerLimits, max_upload: str, as_json: bool) -> None:
    """Serve until Ctrl-C; whatever ends it, uploads are removed."""
    size = bytes_of(max_upload)
    if not size:
        raise AneforgeError(f"--max-upload {max_upload}: not a size. Write for instance 500M or 2G.")
    signal.signal(signal.SIGTERM, _leave)
    with Server(host, port, target, limits, size) as server:
        if not server.is_local:
            say.note(
                f"warning: {host} can be reached from other machines, and everybody there can have models read here. "
                "Leave --host out to serve this machine only."
            )
        print(json.dumps({"url": server.url}) if as_json else f"serving on {server.url} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say.note("stopped; uploads are removed")


def _leave(number: int, frame: FrameType | None) -> None:
    """A polite end is one like Ctrl-C: files are removed."""
    sys.exit(0)
