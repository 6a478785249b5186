"""`watch` and `feeds`: what happens, and who has seen how much of it."""

import contextlib
import re
import signal
import sys
import threading
from collections.abc import Generator
from itertools import islice

import click
from rich.text import Text

from chatledger.domain.draw.event_words import EventWords
from chatledger.domain.draw.outline import escaped
from chatledger.domain.errors import NotFoundError

from ...ledger.feed import TOPICS, FeedInfo
from ...ledger.log import Recorded
from .log import event_line
from .options import GlobalOptions, WholeNumber, ledger_at, ledger_options, limit_option, listing_options, parsed
from .output import count, fields_of, format_time, print_json, print_lines, print_note, print_text, print_values


def _share(value: str) -> tuple[int, int]:
    numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", value)
    if numbers is None:
        raise ValueError
    return int(numbers[1]), int(numbers[2])


@click.command("watch")
@click.option("--chat", "chat_id", metavar="CHAT", help="Only events of this chat.")
@click.option("--user", "user_id", metavar="ID", help="Only events of this owner's chats.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    type=click.Choice(sorted(TOPICS)),
    help="Only events of this type, e.g. message_appended; may be repeated.",
)
@click.option("--name", metavar="NAME", help="Go on after what was printed under this name before.")
@click.option(
    "--share",
    metavar="I/N",
    callback=parsed(_share, "is no share; 0/3, 1/3 and 2/3 are the three of three"),
    help="Only chats of share I of N: 0/3, 1/3 or 2/3 of three.",
)
@click.option(
    "--after",
    type=WholeNumber(min=0),
    metavar="POSITION",
    help="Begin after this position on the log: 0 for all there ever were. By default from now on; a new name from 0.",
)
@limit_option("events, then end")
@ledger_options
def watch_command(
    settings: GlobalOptions,
    *,
    chat_id: str | None,
    user_id: str | None,
    topics: tuple[str, ...],
    name: str | None,
    share: tuple[int, int] | None,
    after: int | None,
    limit: int | None,
) -> None:
    """
    Print changes as they happen, until Ctrl-C.

    By whatever process they are made. With --json, one object a line. To go on later, use --name, or give --after the last
    position printed.
    """
    # Ctrl-C reaches every process of the foreground group, the embedded server among them; the log stays sound.
    with contextlib.suppress(KeyboardInterrupt), ledger_at(settings) as ledger:
        feed = ledger.feed(after, name=name, share=share, chat_id=chat_id, user_id=user_id, topics=topics or None)
        if sys.stderr.isatty():
            print_note(f"watching {ledger.location}, Ctrl-C ends it")
        with feed:
            printed: Recorded | None = None
            words = EventWords()
            # The usual end.
            with contextlib.suppress(KeyboardInterrupt):
                for recorded in islice(feed, limit):
                    with _uninterrupted():
                        if settings.as_json:
                            print_json(fields_of(recorded))
                        else:
                            print_lines([event_line(recorded, words, with_chat=chat_id is None)])
                        sys.stdout.flush()  # what was acknowledged is never printed again, so it has to be out before
                        printed = recorded
            if printed is not None:
                feed.ack(printed.position)


@contextlib.contextmanager
def _uninterrupted() -> Generator[None]:
    """Let Ctrl-C wait until the end, so that what is printed and what is known to be printed are the same."""
    if threading.current_thread() is not threading.main_thread():  # Python lets no other thread handle signals
        yield
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


@click.command("feeds")
@click.option("--forget", "forgotten", metavar="NAME", help="Forget this name: it begins anew.")
@listing_options
def feeds_command(settings: GlobalOptions, *, forgotten: str | None) -> None:
    """
    List the named feeds, with what they have handled and how far the log is ahead.

    A name read in shares has a line for each.
    """
    with ledger_at(settings) as ledger:
        if forgotten is not None and not ledger.forget_feed(forgotten):
            msg = f"there is no feed {forgotten!r}; 'chatledger feeds' lists them"
            raise NotFoundError(msg)
        infos = ledger.feeds()
    if settings.for_programs:
        print_values(infos, FeedInfo, as_csv=settings.as_csv)
    elif forgotten is not None:
        print_text(f"Forgot the feed {forgotten}.")
    elif infos:
        print_lines(map(_line, infos), is_cut=True)
    else:
        print_note("no feed has a name yet; 'chatledger watch --name NAME' makes one")


def _line(info: FeedInfo) -> Text:
    share = "" if info.share is None else f" {info.share[0]}/{info.share[1]}"
    lag = f"{count(info.lag, 'position')} behind" if info.lag else "up to date"
    return Text.assemble(
        (escaped(f"{info.name}{share}"), "bold"),
        f"  at {info.position:,}, {lag}  ",
        (format_time(info.saved_at), "dim"),
    )
