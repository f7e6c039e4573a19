"""What gets installed: one package, typed, with its commands, and nothing beside it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuectl import __version__

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "queuectl"


def builder(folder: str) -> list[str]:
    """The command that builds a wheel into a folder: hatchling where it is installed, else uv, which fetches it once."""
    if importlib.util.find_spec("hatchling") is not None:
        return [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    of_make = sorted(map(str, CACHE.glob("uv-*/bin/uv")))  # as the Makefile fetches it
    found = [str(Path(sys.executable).with_name("uv")), *of_make[-1:], shutil.which("uv") or ""]
    for uv in found:
        if uv and Path(uv).is_file():
            return [uv, "build", "--quiet", "--wheel", "--python", sys.executable, "-o", folder, str(ROOT)]
    pytest.skip("neither hatchling nor uv is installed; `make venv` brings one")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(builder(str(folder)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_it_is_one_package(wheel: zipfile.ZipFile) -> None:
    assert {name.partition("/")[0] for name in wheel.namelist()} == {"queuectl", f"queuectl-{__version__}.dist-info"}


def test_it_is_whole(wheel: zipfile.ZipFile) -> None:
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "queuectl").rglob("*.py")}
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "queuectl/serve/dashboard").iterdir()}
    packed = {name for name in wheel.namelist() if name.startswith("queuectl/")}
    assert "queuectl/serve/dashboard/index.html" in pages
    assert packed == sources | pages | {"queuectl/py.typed"}


def test_it_brings_its_commands_and_its_licence(wheel: zipfile.ZipFile) -> None:
    about = f"queuectl-{__version__}.dist-info"
    commands = wheel.read(f"{about}/entry_points.txt").decode()
    for name in ("queuectl", "kubectl-queuectl"):
        assert f"{name} = queuectl.cli.main:main\n" in commands
    assert f"{about}/licenses/LICENSE" in wheel.namelist()
    assert f"\nVersion: {__version__}\n" in wheel.read(f"{about}/METADATA").decode()
