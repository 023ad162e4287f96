"""What ``make demo`` runs: the questions a model engineer asks first, answered from the target database.

Each block prints the command that gives the same answer from a shell.
"""

from __future__ import annotations

import subprocess
import sys


def command(*words: str) -> None:
    """Run one command of the package and show it as a user would type it."""
    shown = " ".join(f'"{word}"' if " " in word else word for word in words)
    print(f"\n$ aneforge {shown}", flush=True)
    subprocess.run([sys.executable, "-m", "aneforge", *words], check=True)  # noqa: S603


def main() -> None:
    print("aneforge: what every Apple Neural Engine is, with the evidence behind each value.")
    command("targets")
    print("\nWhich operations change between an M1, an M2 and an M5?")
    command("ops", "--target", "m1,m2,m5", "--differ")
    print("\nWhy is sine not native on an M1, and on whose word?")
    command("ops", "sin", "--target", "m1,m3")
    print("\nOne compiler builds every chip; this is all that differs between these two:")
    command("hal", "M1", "--diff", "M5 Pro")
    print("\nAnd one cell, down to the function that reads it:")
    command("hal", "h13", "0x1b8")
    print("\nSources disagree about the M2. Who wins, and why?")
    command("explain", "C03")


if __name__ == "__main__":
    main()
