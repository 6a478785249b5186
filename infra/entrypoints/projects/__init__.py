"""Small projects with tests that pass, to begin from: each folder beside this module is one."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from chatledger.domain.errors import ConfigurationError

TEMPLATES: Final = ("plain", "fastapi", "langgraph")
_SUFFIX: Final = "-tpl"
"""Of each file: tools that look for Python, and for tests, shall not find what is none of ours."""
_IGNORED: Final = "/chats*\n__pycache__/\n.venv/\n"
"""Conversations do not go into a repository."""


def write_project(folder: Path, template: str) -> list[Path]:
    """
    Write a project into a folder, which is made if it is not there, and return its files.

    Args:
        folder: The folder; the name of the project is its name.
        template: One of `TEMPLATES`.

    Raises:
        ConfigurationError: There is something in that folder, or it cannot be written. Nothing was overwritten.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            msg = f"{folder} is there already, and not an empty folder; name one that is not there yet"
            raise ConfigurationError(msg)
        name = folder.resolve().name
        name.encode()
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            file.name.removesuffix(_SUFFIX): file.read_text("utf-8").replace("{{name}}", name)
            for file in (files(__name__) / template).iterdir()
        }
        written: list[Path] = []
        for file_name, text in sorted((texts | {".gitignore": _IGNORED}).items()):
            written.append(folder / file_name)
            with written[-1].open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        msg = f"{folder} cannot be written: {error.strerror or error}"
        raise ConfigurationError(msg) from error
    except UnicodeEncodeError as error:
        msg = f"the name {str(folder)!r} is not UTF-8; give another one"
        raise ConfigurationError(msg) from error
    return written
