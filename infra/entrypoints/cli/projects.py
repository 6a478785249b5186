"""`new`: a small project to begin from."""

from pathlib import Path

import click

from ..projects import TEMPLATES, write_project
from .output import print_text


@click.command("new")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default=TEMPLATES[0],
    show_default=True,
    help="A chat in a terminal, a backend for browsers, or an agent of LangGraph.",
)
def new_command(folder: Path, template: str) -> None:
    """
    Write a small project into DIR, with tests that pass.

    What stands for the model is one function, which answers with what was said: put yours in its place.
    """
    for file in write_project(folder, template):
        print_text(str(file))
    print_text(f"Next, in {folder}:", "dim")
    print_text("python -m pip install -r requirements.txt", "dim")
    print_text("python -m pytest", "dim")
