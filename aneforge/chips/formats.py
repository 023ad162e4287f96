"""Image (interchange) formats: four-character tags, plane layouts, and which target takes which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact, fact
from aneforge.errors import UnknownNameError, nearest


@dataclass(frozen=True)
class Plane:
    """One plane of a surface, as the compiler's plane descriptor states it."""

    width_divisor: int
    height_divisor: int
    element: str
    channels: int
    depth: int


@dataclass(frozen=True)
class ImageFormat:
    """A tag such as ``&BGA``: a packing prefix and a base pixel format."""

    tag: str
    packing: Fact[str]
    mode: int
    base: Fact[str]
    code: int
    planes: Fact[tuple[Plane, ...]]

    @property
    def four_character_code(self) -> int:
        """The tag as the big-endian integer that surfaces carry."""
        return int.from_bytes(self.tag.encode("ascii"), "big")

    def to_json(self) -> dict[str, Any]:
        planes = [vars(plane) for plane in self.planes.value]
        return {
            "tag": self.tag,
            "fourcc": f"{self.four_character_code:#010x}",
            "mode": self.mode,
            "code": f"{self.code:#04x}",
            "packing": self.packing.to_json(),
            "base": self.base.to_json(),
            "planes": {**self.planes.to_json(), "value": planes},
        }


@dataclass(frozen=True)
class FormatSet:
    """What one target accepts: a published count, and the tags among them that are known by name."""

    tier: str
    count: Fact[int]
    formats: tuple[ImageFormat, ...]
    unlisted: str | None
    without: tuple[str, ...]

    def accepts(self, tag: str) -> bool | None:
        """True or False where the published list settles it, ``None`` where the tag may be unlisted."""
        wanted = image_format(tag).tag
        if any(known.tag == wanted for known in self.formats):
            return True
        if self.unlisted is None or wanted[1:] in self.without:
            return False
        return None

    def to_json(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "count": self.count.to_json(),
            "formats": [known.to_json() for known in self.formats],
            "unlisted": self.unlisted,
        }


@cache
def image_format(tag: str) -> ImageFormat:
    """One format by its tag."""
    document = store.load("image_formats")
    prefix, base = tag[:1], tag[1:]
    if prefix not in document["prefixes"] or base not in document["bases"]:
        near = ", ".join(nearest(tag, image_format_tags())) or ", ".join(image_format_tags()[:4])
        raise UnknownNameError(f"{tag!r}: not an image format; nearest: {near}")
    packing, pixel = document["prefixes"][prefix], document["bases"][base]
    planes = tuple(Plane(**plane) for plane in pixel["planes"])
    return ImageFormat(
        tag=tag,
        packing=fact(packing, key="meaning", about=f"packing of {tag}"),
        mode=packing["mode"],
        base=fact(pixel, key="name", about=f"pixel format of {tag}"),
        code=int(pixel["code"], 16),
        planes=Fact(planes, tuple(pixel["src"]), pixel["planes_conf"], about=f"planes of {tag}"),
    )


def image_format_tags() -> tuple[str, ...]:
    """Every tag that the published prefixes and bases can form."""
    document = store.load("image_formats")
    return tuple(prefix + base for base in document["bases"] for prefix in document["prefixes"])


def image_formats(target: Target) -> FormatSet:
    """The image formats that a target accepts."""
    for tier, row in store.load("image_formats")["sets"].items():
        if target.name in row["targets"]:
            formats = tuple(image_format(tag) for tag in row["tags"])
            count = fact(row, key="count", about=f"image formats of {target.name}")
            return FormatSet(tier, count, formats, row["unlisted"], tuple(row.get("without", ())))
    raise UnknownNameError(f"{target.name}: no image formats are published for this target; choose another one")
