"""Which family this machine's own engine belongs to."""

from __future__ import annotations

import os
import sys
import warnings
from threading import Lock

from aneforge.chips.chip import Target
from aneforge.chips.families import MIN_FAMILY, Family
from aneforge.chips.names import arch_for_family, chip_label, resolve, target
from aneforge.errors import AneforgeError

ENVIRONMENT = "ANEFORGE_TARGET"
_warned: set[str] = set()
_warned_lock = Lock()


class TargetDetectionWarning(UserWarning):
    """The host's engine could not be determined, so the conservative floor is used."""


def detect_family() -> Family:
    """The host's five-tier family: ``ANEFORGE_TARGET``, then the CPU brand, then the H13 floor.

    The floor is safe: a family-2 program runs on every newer chip. It is announced once. A value of the
    environment variable that names no chip is an error, never ignored.
    """
    override = os.environ.get(ENVIRONMENT, "").strip()
    if override:
        return _family_of(override)
    brand = _cpu_brand()
    if brand is not None and brand.casefold().startswith("apple "):
        try:
            return _family_of(f"product:{brand}")
        except AneforgeError:
            pass  # a chip newer than the database: the floor still runs there
    _warn_once(brand)
    return MIN_FAMILY


def host_target() -> Target:
    """The target of this machine: the one that ``ANEFORGE_TARGET`` names, as it is; a detected engine by the
    representative of its family."""
    family = detect_family()
    named = os.environ.get(ENVIRONMENT, "").strip()
    return target(named or arch_for_family(family))


def product_of_host() -> str:
    """The chip of this Mac by its product name: as ``ANEFORGE_TARGET`` says, or as the system does."""
    override = os.environ.get(ENVIRONMENT, "").strip()
    if override:
        return chip_label(override)
    brand = _cpu_brand() or ""
    if not brand.casefold().startswith("apple "):
        raise AneforgeError(f"this machine does not say which Apple chip it has. Name it with {ENVIRONMENT}.")
    return chip_label(f"product:{brand}")


def _family_of(name: str) -> Family:
    family = target(name).family5
    if family is None:
        raise AneforgeError(
            f"{ENVIRONMENT}={name}: target {resolve(name).target.name} has no family; choose another chip"
        )
    return family


def _warn_once(brand: str | None) -> None:
    seen = brand or "no CPU brand string"
    with _warned_lock:
        if seen in _warned:
            return
        _warned.add(seen)
    warnings.warn(
        f"cannot determine this machine's engine ({seen}); assuming family {int(MIN_FAMILY)} (M1), which every newer "
        f"chip runs. Set {ENVIRONMENT}, for instance {ENVIRONMENT}=h16s, to choose.",
        TargetDetectionWarning,
        stacklevel=3,
    )


def _cpu_brand() -> str | None:
    """The marketing name of the CPU. The model identifier does not tell: MacBookPro17,1 is an M1."""
    if sys.platform != "darwin":
        return None
    import subprocess

    try:
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
