"""Pages that are one file and need no network: the frame around them, their colours, and data that stays data."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from aneforge.version import __version__

_FRAME = "aneforge.reports"
_OF_THE_FRAME = ("shell.html", "theme.js", "rows.js")
_PACKED_FROM = 50_000


def page_text(room: str, template: str, scripts: Sequence[str], **values: Any) -> str:
    """A page from a template of a room's ``page`` folder, which extends ``shell.html``; its style is ``page.css``.

    ``scripts`` share their names and may wait; ``theme.js`` and ``rows.js`` are the frame's. When all have run, the
    page says ``data-ready``.
    """
    import jinja2  # here, because most commands write no page

    def source(name: str) -> str:
        return _part(_FRAME if name in _OF_THE_FRAME else room, name)

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.FunctionLoader(source)
    )
    script = "\n".join(map(source, scripts))
    known = {"version": __version__, "colours": colours(), "style": source("page.css"), "script": script}
    return environment.get_template(template).render(**known, **values)


def colours() -> str:
    """The style sheet with the colours of every page."""
    return _part(_FRAME, "colours.css")


def embedded(document: Any) -> dict[str, str]:
    """A document as JSON in a page, which no browser takes for markup: a name in it may hold anything. A long one is
    packed, which makes the file ten times smaller and the page open sooner."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
    if len(text) > _PACKED_FROM:
        packer = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)  # gzip's own header differs by Python
        packed = packer.compress(text.encode("utf-8")) + packer.flush()
        return {"data_type": "application/gzip", "data": base64.b64encode(packed).decode("ascii")}
    plain = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return {"data_type": "application/json", "data": plain}


def _part(room: str, name: str) -> str:
    return (files(room) / "page" / name).read_text(encoding="utf-8")
