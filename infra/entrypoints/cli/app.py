"""The command `chatledger` itself: which verbs there are, and what happens to errors."""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from chatledger.domain.errors import ChatledgerError

from .options import LOCATION_ENV, as_user_option, location_option
from .output import print_error

VERBS: Final = {
    "demo": "demo",
    "new": "projects",
    "import": "transfer",
    "export": "transfer",
    "chats": "chats",
    "show": "show",
    "branches": "chats",
    "checkpoints": "chats",
    "runs": "chats",
    "cache-report": "chats",
    "threads": "threads",
    "states": "threads",
    "items": "threads",
    "diff": "show",
    "compare": "compare",
    "merge": "merging",
    "search": "search",
    "keep": "keep",
    "sessions": "keep",
    "resume": "keep",
    "log": "log",
    "replay": "log",
    "rebuild": "log",
    "edit": "changes",
    "delete": "changes",
    "prune": "threads",
    "sweep": "changes",
    "erasures": "changes",
    "redact": "changes",
    "redact-words": "changes",
    "links": "sharing",
    "members": "sharing",
    "hold": "keeping",
    "release": "keeping",
    "holds": "keeping",
    "retention": "keeping",
    "watch": "log",
    "feeds": "log",
    "verify": "proofs",
    "anchor": "proofs",
    "timestamp": "stamps",
    "prove": "proofs",
    "check-proof": "proofs",
    "check-receipt": "proofs",
    "bundle": "bundles",
    "remote": "travel",
    "pull": "travel",
    "push": "travel",
    "sync": "travel",
    "backup": "upkeep",
    "restore": "upkeep",
    "doctor": "upkeep",
    "serve": "serving",
    "explore": "serving",
    "mcp": "serving",
    "keys": "serving",
    "completion": "app",
}
"""Each verb and the module of its command, `<verb>_command`; in the order of `--help`."""

OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130
_VERB = "chatledger.verb"


class LedgerGroup(click.Group):
    """A group that imports a verb when it is asked for, and turns errors into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of a first session."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb."""
        del ctx
        # One verb imports its module only: with all of them each call would wait for what it does not use.
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(
            import_module(f".{VERBS[cmd_name]}", __package__), f"{cmd_name.replace('-', '_')}_command"
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name, or an error that names its neighbours."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            # Imported here, as hardly any call needs it and each would wait for it.
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(VERBS)}"
            msg = f"there is no verb {args[0]!r}; {hint}"
            raise click.UsageError(msg, ctx)
        name, command, rest = super().resolve_command(ctx, args)
        inner = rest[:1] if isinstance(command, click.Group) and rest and rest[0] in command.commands else []
        ctx.meta[_VERB] = " ".join([args[0], *inner])
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Carry out the verb. A reader who goes away, as `| head` does, ends it silently."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_stdout()
            return OK
        except click.UsageError as error:
            if error.ctx is None and _VERB in ctx.meta:  # click's parser does not say of which verb
                error.ctx = click.Context(self, ctx, ctx.meta[_VERB])
            raise
        return code

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,
    ) -> Any:
        """Run to the end and exit; with `standalone_mode=False`, return the exit code instead."""
        # Let an output that cannot show every character show the others, and one that is closed be none; likewise
        # an input.
        # `chatledger chats >&-` closes one.
        if sys.stdin is None:
            sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - as long as the process
        if sys.stdout is None:
            sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as above
        if sys.stderr is None:
            sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as above
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # UTF-8 cannot show half an emoji
                # Windows writes to pipes and files in a code page that has few letters.
                stream.reconfigure(encoding="utf-8" if sys.platform == "win32" else None, errors="replace")
        try:
            code = super().main(args, prog_name or "chatledger", complete_var, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            code = MISUSED
        except click.UsageError as error:
            command = "chatledger" if error.ctx is None else error.ctx.command_path
            hint = f"; see '{command} --help'"
            code = _fail(error.format_message().rstrip(".") + hint, MISUSED)
        except click.ClickException as error:
            code = _fail(error.format_message(), FAILED)
        except ChatledgerError as error:
            code = _fail(str(error), FAILED)
        # Ctrl-C, as click has it: nothing to say.
        except click.Abort:
            code = INTERRUPTED
        except OSError as error:
            # Above all what is printed: a full disk, a terminal that went away.
            _forget_stdout()
            code = _fail(": ".join(str(part) for part in (error.strerror or error, error.filename) if part), FAILED)
        code = code if isinstance(code, int) else OK
        if standalone_mode:
            sys.exit(code)
        return code


def _fail(message: str, code: int) -> int:
    print_error(message)
    return code


def _forget_stdout() -> None:
    """Send what is still buffered nowhere, also what the interpreter flushes at its end, for the reader has gone."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@click.group(
    "chatledger",
    cls=LedgerGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="VERB [ARGS]...",
)
@location_option(envvar=LOCATION_ENV)
@as_user_option
@click.version_option(package_name="chatledger", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """
    Conversations with AI agents as a DAG of immutable messages on an append-only log.

    \b
    Begin with:
        chatledger demo
        chatledger import conversations.json
        chatledger chats

    The ledger is a directory by default; --location also takes nats://host:port/stream, sqlite:///file.db,
    postgresql://host/database and memory:. Exit codes: 0 fine, 1 an error, 2 wrong usage.
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """
    Print the script with which a shell completes verbs, options and ids.

    \b
    Once, for bash, zsh and fish:
        chatledger completion bash > ~/.local/share/bash-completion/completions/chatledger
        chatledger completion zsh > "${fpath[1]}/_chatledger"
        chatledger completion fish > ~/.config/fish/completions/chatledger.fish
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines
    # Imported here, as hardly any call needs it and each would wait for it.
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    # Past its check of the version of bash, which is that of the shell that reads the script and not of the one here.
    script = ShellComplete.source(
        kind(click.get_current_context().find_root().command, {}, "chatledger", "_CHATLEDGER_COMPLETE")
    )
    sys.stdout.write(script)


def main() -> NoReturn:
    """Run the command line and exit."""
    cli.main()
    raise AssertionError
