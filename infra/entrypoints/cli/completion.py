"""`completion`: the script with which a shell completes verbs and options."""

import sys

import click
from click.shell_completion import ShellComplete, get_completion_class

_VARIABLE = "_CHATLEDGER_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """
    Print the script with which a shell completes verbs and options.

    \b
    Once, for bash, zsh and fish:
        chatledger completion bash > ~/.local/share/bash-completion/completions/chatledger
        chatledger completion zsh > "${fpath[1]}/_chatledger"
        chatledger completion fish > ~/.config/fish/completions/chatledger.fish
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    # Past its check of the version of bash, which is that of the shell that reads the script and not of the one here.
    script = ShellComplete.source(kind(click.get_current_context().find_root().command, {}, "chatledger", _VARIABLE))
    sys.stdout.write(script)
