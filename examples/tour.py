"""The long tour, ``make tour``: every part of the package on larger models, some hundred lines of output.

Each block prints the command that gives the same answer from a shell. ``examples/demo.py`` is the first minute.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def command(*words: str, allowed: tuple[int, ...] = (0,)) -> None:
    """Run one command of the package and show it as a user would type it; a refusal among targets is status 1."""
    shown = " ".join(f'"{word}"' if " " in word else word for word in words)
    print(f"\n$ aneforge {shown}", flush=True)
    done = subprocess.run([sys.executable, "-m", "aneforge", *words], check=False, cwd=ROOT)  # noqa: S603
    if done.returncode not in allowed:
        sys.exit(f"aneforge {shown} ended with status {done.returncode}")


def main() -> None:
    print("aneforge: what every Apple Neural Engine will do with a model, with the evidence behind each answer.")
    print("\nA U-Net block with bilinear upsampling and sines, on every chip:")
    command("check", "examples/unet_block.py")
    print("\nThe compiler tells the same story: the rewrite that check names is the one it applies.")
    command("compile", "examples/unet_block.py", "--target", "m1", "--explain", "upsample_bilinear_0")
    print("\nA vision transformer with 16 x 16 patches. Which chips take the kernel, and what can be done?")
    command("check", "examples/vit.py", "--target", "m1,m3,m5,m6", "--fail-on", "none")
    print("\nResNet-18 through all phases of the compiler, for every target of the vendor's compiler:")
    command("compile", "examples/resnet.py", "--target", "all", allowed=(0, 1))
    print("\nThe program for an M1, from the user's nodes to addresses:")
    command("compile", "examples/resnet.py", "--target", "m1")
    print("\nWhy did this node become what it is?")
    command("compile", "examples/resnet.py", "--target", "m1", "--explain", "batch_norm_10")
    print("\nThe same inputs: what numbers do an M1, an M2, an M5 and an M6 give, and where do they differ?")
    command("run", "examples/unet_block.py", "--target", "m1,m2,m5,m6")
    print("\nA detector that works on an M5 and is wrong on an M1. Which layer, why, and what to write instead?")
    command("risks", "examples/breaks_on_m1.py", "--target", "m1", allowed=(1,))
    command("compare", "examples/breaks_on_m1.py", "--target", "m1,m5", "--any-input")
    print("\nHow long does a call take on each chip, and what does that rest on?")
    command("estimate", "examples/resnet.py", "--target", "all")
    print("\nWhich form of it is fastest on an M5, if its results may be off by five per cent?")
    command("tune", "examples/resnet.py", "--target", "m5", "--target-error", "0.05")
    print("\nHow do we know? What people read off real chips, beside what the simulator gives:")
    command("probe", "--target", "m1")
    print("\nAll targets and the chips that carry them:")
    command("targets")
    print("\nWhich operations change between an M1, an M2 and an M5?")
    command("ops", "--target", "m1,m2,m5", "--differ")
    print("\nWhy is sine not native on an M1, and on whose word?")
    command("ops", "sin", "--target", "m1,m3")
    print("\nOne compiler builds every chip; this is all that differs between these two:")
    command("hal", "M1", "--compare", "M5 Pro")
    print("\nAnd one cell, down to the function that reads it:")
    command("hal", "h13", "0x1b8")
    print("\nSources disagree about the M2. Who wins, and why?")
    command("explain", "C03")


if __name__ == "__main__":
    main()
