"""
The reference page of the command line, made from the commands themselves.

    python -m chatledger.infra.cli.reference > docs/reference/cli.md
"""

import inspect
import sys
from collections.abc import Iterator

import click

from .app import cli


def reference() -> str:
    """The page as Markdown: the command itself, then a section for each verb."""
    root = click.Context(cli, info_name="chatledger", **cli.context_settings)
    lines = [
        "# The command line",
        "",
        "<!-- Made by `python -m chatledger.infra.cli.reference`; a test compares. -->",
        "",
        *_describe(root),
    ]
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None, name
        lines += ["", f"## chatledger {name}", "", *_describe(click.Context(command, info_name=name, parent=root))]
    return "\n".join(lines) + "\n"


def _describe(context: click.Context) -> Iterator[str]:
    command = context.command
    for number, paragraph in enumerate(inspect.cleandoc(command.help or "").split("\n\n")):
        if number:
            yield ""
        if paragraph.startswith("\b\n"):
            # These lines are kept as they are; they are no shell block, because their files are made up.
            intro, *examples = paragraph.removeprefix("\b\n").splitlines()
            yield from (intro, "", "```text", *(line.strip() for line in examples), "```")
        else:
            yield " ".join(paragraph.split())
    yield from ("", "```text", f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}", "```", "")
    yield from (_describe_option(option) for option in command.get_params(context) if isinstance(option, click.Option))


def _describe_option(option: click.Option) -> str:
    names = ", ".join(option.opts)
    if isinstance(option.type, click.Choice):
        names += f" {'|'.join(option.type.choices)}"
    elif option.metavar is not None:
        names += f" {option.metavar}"
    return f"- `{names}`: {option.help}"


if __name__ == "__main__":
    sys.stdout.write(reference())
