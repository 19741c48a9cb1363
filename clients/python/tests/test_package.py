"""The wheel and the source distribution: built, installed into an empty environment, and used."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = """
import asyncio, importlib.util, tidewire
assert importlib.util.find_spec("pydantic") is None
assert importlib.util.find_spec("opentelemetry") is None
async def main():
    async with tidewire.connect("ws://localhost:1/ws") as tw:
        try:
            await tw.stream("s").publish({"a": 1}, timeout=0.05)
        except tidewire.Timeout as error:
            print(error.code)
asyncio.run(main())
"""


def run(*command: str | Path) -> str:
    """Runs a command, and returns what it prints."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_wheel_and_sdist(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tidewire/py.typed" in names
    assert all(name.startswith(("tidewire/", "tidewire-")) for name in names)
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("src/tidewire/client.py") for name in archive.getnames())
    venv.create(tmp_path / "env")
    python = tmp_path / "env/bin/python"
    run(sys.executable, "-m", "pip", "--quiet", "--python", python, "install", wheel)
    assert run(python, "-W", "error", "-c", PROGRAM).strip() == "timeout"
