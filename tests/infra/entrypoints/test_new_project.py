"""`chatledger new`: each project has tests that pass, and a program that goes on where it stopped."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cli_world import fails, run

from chatledger.infra.entrypoints.projects import TEMPLATES

ROOT = Path(__file__).parents[3]
OTHERS_PLUGINS = ["-p", "no:asyncio", "-p", "no:langsmith_plugin", "-p", "no:schemathesis", "-p", "no:cacheprovider"]


def run_python(folder: Path, *arguments: str, text: str = "") -> str:
    """Output of Python in a folder, where what is only deprecated is an error."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        input=text,
        env={**os.environ, "CHATS": "sqlite:///chats.db"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.guard
@pytest.mark.parametrize("template", TEMPLATES)
def test_its_tests_pass(template: str, tmp_path: Path) -> None:
    """They are real ones, and find something to test."""
    written = run("new", str(tmp_path / "mine"), "--template", template)

    assert {"README.md", "requirements.txt", ".gitignore"} <= {path.name for path in (tmp_path / "mine").iterdir()}
    assert str(tmp_path / "mine" / "README.md") in written.stdout
    assert (tmp_path / "mine" / "README.md").read_text(encoding="utf-8").startswith("# mine\n")
    assert "3 passed" in run_python(tmp_path / "mine", "-m", "pytest", "-q", *OTHERS_PLUGINS)


@pytest.mark.guard
@pytest.mark.parametrize(
    ("template", "program", "roles"), [("plain", "chat.py", "user assistant"), ("langgraph", "agent.py", "human ai")]
)
def test_its_program_goes_on(template: str, program: str, roles: str, tmp_path: Path) -> None:
    run("new", str(tmp_path / "mine"), "--template", template)
    first = run_python(tmp_path / "mine", program, text="Riga?\n\n")
    second = run_python(tmp_path / "mine", program, text="By train?\n")

    asking, answering = roles.split()
    assert first == "you: You said: Riga?\nyou: "
    assert second == f"{asking}: Riga?\n{answering}: You said: Riga?\nyou: You said: By train?\nyou: "


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "app.py").write_text("mine")
    for place in (tmp_path / "mine", tmp_path / "mine" / "app.py"):
        assert (
            fails(1, "new", place)
            == f"{place} is there already, and not an empty folder; name one that is not there yet"
        )
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["mine"]


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    """Bytes of another encoding in the arguments become half characters."""
    assert "is not UTF-8; give another one" in fails(1, "new", tmp_path / "\udcff")
    assert not list(tmp_path.iterdir())


def test_the_backend_is_that_of_the_how_to(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/web-backend.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- file: app.py -->\n```python\n(.*?)```", page, re.DOTALL)
    run("new", str(tmp_path / "mine"), "--template", "fastapi")
    assert shown is not None
    assert (tmp_path / "mine" / "app.py").read_text(encoding="utf-8") == shown[1]
