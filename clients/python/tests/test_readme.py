"""The code of the README and of the tutorial runs, and what they show of files is there."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from conftest import Real

ROOT = Path(__file__).parent.parent


def blocks(page: Path) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


CODE = [block for block in blocks(ROOT / "README.md") if "import" in block]


@pytest.mark.parametrize("number", range(len(CODE)))
def test_readme(real: Real, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    code = CODE[number]
    unique = uuid.uuid4().hex
    for kind, name in (("streams", "orders"), ("queues", "mail")):
        real.make(kind, f"{name}-{unique}")
        code = code.replace(f'"{name}"', f'"{name}-{unique}"')
    code = code.replace('"hall"', f'"hall-{unique}"')
    code = code.replace("course:1", f"course:{unique}").replace("ws://localhost:8080/ws", real.url)
    code = code.replace("http://localhost:8080", real.http)
    names: dict[str, object] = {"__name__": "__main__"}  # a block that has a main runs it itself
    exec(compile(code, f"README block {number}", "exec", dont_inherit=True), names)
    shown = capsys.readouterr().out
    assert shown or "print" not in code
    if ".room(" in code:
        assert shown.endswith("ben says hello\n")


def test_the_tutorial_shows_the_files_of_the_example() -> None:
    shown = blocks(ROOT.parent.parent / "docs/tutorials/background-jobs-python.md")
    assert shown
    code = "".join(path.read_text() for path in (ROOT / "examples/fastapi_jobs").glob("*.py"))
    for block in shown:
        assert block in code
