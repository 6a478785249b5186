"""Options shared by several verbs: the location of the ledger, output, encryption."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from rich.text import Text

from chatledger.domain.errors import ChatledgerError, InvalidValueError
from chatledger.domain.wire import Value

from ...ledger.environment import (
    DEFAULT_LOCATION,
    KEY_ENV,
    is_on_nats,
    keys_given,
    login_for,
    require_answer,
    require_ledger,
)
from ...ledger.expiry import ending_ms, time_of_text
from ...operating_system import HAS_EMBEDDED_SERVER
from .output import print_json, print_lines, print_more, print_text, print_values, progress_bar, table

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ...ledger.at_rest import HeldStore
    from ...ledger.ledger import Ledger

LOCATION_ENV: Final = "CHATLEDGER_LOCATION"
F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


@dataclass
class GlobalOptions:
    """The options given before and after the verb; the latter count."""

    location: str = DEFAULT_LOCATION
    is_named: bool = False
    """Whether the command line names the location, rather than the environment or nobody."""
    user_id: str | None = None
    """For whom to act; None for everybody."""
    as_json: bool = False
    as_csv: bool = False

    @property
    def for_programs(self) -> bool:
        """Whether to print values instead of text."""
        return self.as_json or self.as_csv

    def answer(self, value: Any, *lines: str) -> None:
        """Print the outcome of a verb: a value for programs, else lines for people."""
        if self.as_json:
            print_json(value)
            return
        for line in lines:
            print_text(line)

    def answer_list(
        self,
        values: Sequence[Value],
        kind: type[Value],
        columns: Sequence[list[Text]],
        *,
        end: str = "",
        nothing: str = "",
        left_out: int = 0,
    ) -> None:
        """Print a list for programs, or as a table, with a line below it and how much was left out; `nothing` where it is empty."""
        if self.for_programs:
            print_values(values, kind, as_csv=self.as_csv)
            return
        if values or left_out:
            print_lines(table(columns))
            print_more(left_out)
        elif nothing:
            print_text(nothing)
        if end:
            print_text(end, "dim")


KEEP_ENV: Final = "CHATLEDGER_KEEP"


def kept_location(settings: GlobalOptions) -> str:
    """Where the transcripts of coding agents are kept: as the command line says, else the environment, else in the user's data."""
    import platformdirs

    if settings.is_named:
        return settings.location
    folder = platformdirs.user_data_path("chatledger") / "agents"
    # Where no server of its own runs, as on Windows, a file is a ledger.
    return os.environ.get(KEEP_ENV) or (str(folder) if HAS_EMBEDDED_SERVER else f"sqlite:///{folder / 'agents.db'}")


def kept_where_set(ctx: click.Context, _: click.Parameter, value: bool) -> bool:  # noqa: FBT001 - click's signature
    """Take the ledger of transcripts where a flag is given: a callback of click."""
    settings = ctx.ensure_object(GlobalOptions)
    if value:
        settings.location, settings.is_named = kept_location(settings), True
    return value


kept_option = click.option(
    "--kept",
    is_flag=True,
    expose_value=False,
    callback=kept_where_set,
    help="The ledger of transcripts of coding agents, which 'chatledger keep' fills.",
)


def location_option(*, envvar: str | None = None) -> Callable[[F], F]:
    """`--location`, before the verb and after it."""

    def keep(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        settings = ctx.ensure_object(GlobalOptions)
        if value is not None:
            settings.location = value
            source = ctx.get_parameter_source(str(parameter.name))
            settings.is_named = source is click.core.ParameterSource.COMMANDLINE

    return click.option(
        "-l",
        "--location",
        metavar="PLACE",
        envvar=envvar,
        expose_value=False,
        callback=keep,
        help=f"Where the ledger is; {LOCATION_ENV} in the environment, else {DEFAULT_LOCATION}.",
    )


class Id(click.types.StringParamType):
    """The id of what the parameter is named after, such as `thread_id`; a shell completes it from the ledger that the words before it name."""

    name = "id"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """The ids that begin so, those changed last first, and titles of chats; none where the ledger cannot be read."""
        from click.shell_completion import CompletionItem

        kind = str(param.name).partition("_")[0].removesuffix("s")
        with contextlib.suppress(ChatledgerError), ledger_at(ctx.ensure_object(GlobalOptions), is_read=True) as ledger:
            from .lookup import list_ids

            # Where the value of an option is what is completed, Click leaves arguments where they are.
            chat_id = ctx.params.get("chat_id") or next(iter(ctx.args), None)
            ids = list_ids(ledger, kind, chat_id=chat_id)
            return [
                CompletionItem(some_id, help=title) for some_id, title in ids.items() if some_id.startswith(incomplete)
            ]
        return []


ID: Final = Id()
chat_argument = click.argument("chat_id", metavar="CHAT", type=ID)


def _keep_user(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    settings = ctx.ensure_object(GlobalOptions)
    # A verb that has the option too is asked for it after the command itself: what stood before the verb must not be forgotten.
    if value is not None:
        settings.user_id = value


as_user_option = click.option(
    "--as-user",
    type=ID,
    expose_value=False,
    callback=_keep_user,
    help="Act for this user: what belongs to others is not there.",
)


class WholeNumber(click.IntRange):
    """A whole number in a range, called so in errors."""

    name = "whole number"


def _form_option(name: str, what: str) -> Callable[[F], F]:
    """`--json` or `--csv`, which the function finds in the settings."""

    def keep(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
        settings = ctx.ensure_object(GlobalOptions)
        if value and settings.for_programs:
            msg = "print JSON or CSV, not both"
            raise click.BadParameter(msg, ctx, parameter)
        if value:
            setattr(settings, f"as_{name}", True)

    return click.option(f"--{name}", is_flag=True, expose_value=False, callback=keep, help=what)


json_option = _form_option("json", "Print JSON, for programs; times in ISO 8601.")
_csv_option = _form_option("csv", "Print CSV with a heading, for spreadsheets.")


def place_options(function: Callable[..., R]) -> Callable[..., R]:
    """`--location`, as the last option of a command; the function is given the settings."""
    return location_option()(click.pass_obj(function))


def ledger_options(function: Callable[..., R]) -> Callable[..., R]:
    """`--json` before `place_options`."""
    return json_option(place_options(function))


def listing_options(function: Callable[..., R]) -> Callable[..., R]:
    """`--json` and `--csv` before `place_options`, for verbs that print a list."""
    return json_option(_csv_option(place_options(function)))


def limit_option(what: str) -> Callable[[F], F]:
    """`--limit`, with what it counts."""
    return click.option("-n", "--limit", type=WholeNumber(0, sys.maxsize), metavar="N", help=f"At most N {what}.")


def ending_of(value: str) -> tuple[int | None]:
    """The moment in ms, or None for never: in a tuple, as None alone is the value of an option that was not given."""
    return (None if value == "never" else ending_ms(value),)


def parsed(parse: Callable[[str], R], fault: str) -> Callable[[click.Context, click.Parameter, str | None], R | None]:
    """Return the callback of an option that parses its value; `fault` is said of a value for which that raises `ValueError` or `InvalidValueError`."""

    def callback(ctx: click.Context, parameter: click.Parameter, value: str | None) -> R | None:
        try:
            return None if value is None else parse(value)
        except (ValueError, InvalidValueError):
            msg = f"{value!r} {fault}"
            raise click.BadParameter(msg, ctx, parameter) from None

    return callback


def point_in_log(value: str) -> int | datetime:
    """A position, in digits, or a time, see `read_time`. Raises `InvalidValueError`."""
    return int(value) if re.fullmatch(r"[0-9]{1,18}", value) else time_of_text(value)


point: Final = parsed(
    point_in_log, "is neither a position, e.g. 120, nor a time, e.g. 2026-02-07T17:29:24Z, yesterday, tuesday or 7d"
)
at_option = click.option(
    "--at",
    "--as-of",  # as the method and the parameter over HTTP are called
    "at",
    callback=point,
    metavar="POSITION|TIME",
    help="As it was at this position on the log, or this time: ISO 8601, yesterday, a weekday, 7d (ago); UTC unless it has an offset.",
)
until_option = click.option(
    "--until",
    callback=point,
    metavar="POSITION|TIME",
    help="Up to this position on the log, or this time: ISO 8601, yesterday, a weekday, 7d (ago); UTC unless it has an offset.",
)


@contextlib.contextmanager
def ledger_at(
    settings: GlobalOptions,
    *,
    create: bool = False,
    create_stream: bool = False,
    is_whole: bool = False,
    is_read: bool = False,
) -> Generator["Ledger"]:
    """
    The ledger that the options name, open.

    Args:
        settings: The options.
        create: Whether a directory or file that is not there is made.
        create_stream: The same for the stream on a server.
        is_whole: Whether the verb is about the chats of all users.
        is_read: Whether the verb reads what the index knows, so that a directory that nobody has open may need no server.

    Raises:
        ConfigurationError: There is no ledger, and the verb would find nothing in a new one.
        LogUnavailableError: It is on a server that does not answer.
    """
    location = settings.location
    if is_whole and settings.user_id is not None:
        context = click.get_current_context()
        msg = f"{context.info_name} is about the chats of all users; leave out --as-user"
        raise click.UsageError(msg, context)
    if create:
        require_server(location)
    else:
        require_made(location)
    # Imported here, as `--version`, `--help` and the completion of words open no ledger.
    from ...ledger.at_rest import open_to_read
    from ...ledger.ledger import Ledger

    # The index of an encrypted log is kept in memory, so there is none at rest.
    if is_read and KEY_ENV not in os.environ:
        ledger = open_to_read(location, lambda: _open_store(location, create_stream=create_stream))
    else:
        ledger = Ledger(_open_store(location, create_stream=create_stream))
    with ledger:
        yield ledger if settings.user_id is None else ledger.for_user(settings.user_id)


def _open_store(location: str, *, create_stream: bool) -> "HeldStore":
    # What opening takes is imported here: verbs that read a directory at rest, or print their help, do without it.
    from ...ledger.open import OpenOptions, open_shared

    with progress_bar("building the index") as progress:
        options = OpenOptions(
            location,
            create=create_stream or None,
            progress=progress,
            encryption=keys_given(),
            login=login_for(location),
        )
        return open_shared(options)


def require_made(location: str) -> None:
    """Raise unless there is a ledger at a location, see `require_ledger`; within 3 s where it is on servers."""
    require_ledger(location, hint="; 'chatledger import FILE' makes one, --location names another")
    if is_on_nats(location):
        require_server(location)


def require_server(location: str) -> None:
    """Raise `LogUnavailableError` within 3 s where a location is on servers that do not answer."""
    # For people who wait, and may have mistyped the address: opening would try for all of its timeout.
    require_answer(location, login_for(location))
