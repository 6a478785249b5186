"""`demo`: what chatledger does, shown on sample conversations."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.text import Text

from chatledger.domain.draw.event_words import EventWords

from ...ledger.drafts import assistant, user
from ...ledger.ledger import Ledger
from ..demo import sample_chats, sample_threads
from .chats import chat_rows
from .drawing import best_style, print_tree
from .log import event_line
from .options import GlobalOptions, ledger_at, place_options
from .output import count, print_lines, print_text
from .show import print_conversation, whole_chat
from .threads import show_thread

T = TypeVar("T")
CHAT: Final = "riga"
REWIND_TO: Final = "riga-6"
CHECKPOINT: Final = "first-plan"
THREAD: Final = "research-2"
WORTH_READING: Final = "inland-v2"
"""The branch that the second scene begins, on which the sample is longest."""
_SHOWN_EVENTS: Final = 12


@click.command("demo")
@click.option("--sync", "is_sync", is_flag=True, help="Show how chats travel between ledgers instead. Extra: server.")
@place_options
def demo_command(settings: GlobalOptions, *, is_sync: bool) -> None:
    """
    Show it all on sample conversations, in seconds.

    Import, tree, chain, rewind, checkpoint, history, rebuild. The ledger of the demo is a temporary directory, which is removed at the end; with --location it stays there.
    With --sync: a laptop, an office and a phone, and a conversation that goes on in all three.
    """
    began = time.monotonic()
    if is_sync:
        if settings.is_named:
            msg = "the three ledgers of --sync are temporary; leave --location out"
            raise click.UsageError(msg)
        from .demo_sync import SCENES, three_ledgers

        with three_ledgers() as ledgers:
            _play(SCENES, ledgers)
        print_lines([Text(), Text(f"That was all of it, in {time.monotonic() - began:.1f} s.", style="bold")])
        return
    with _demo_ledger(settings) as ledger:
        _play(_SCENES, ledger)
    print_lines([Text(), Text(f"That was all of it, in {time.monotonic() - began:.1f} s. Next:", style="bold"), Text()])
    place = f" --location {settings.location}" if settings.is_named else ""
    steps = [
        ("chatledger import FILE", "take in a ChatGPT export, an OpenAssistant file, or your own"),
        (f"chatledger chats{place}", "list the chats"),
        (f"chatledger show CHAT{place}", "draw one; --messages reads its active branch"),
        (f"chatledger threads{place}", "list the threads of agents: what waits, what failed"),
        (f"chatledger watch{place}", "see changes as they happen, from any process"),
        ("chatledger demo --location ./demo", "run this again, and keep the ledger to look around in"),
    ]
    width = max(len(command) for command, _ in steps)
    print_lines(Text.assemble("  ", (command.ljust(width), "cyan"), f"   {what}") for command, what in steps)


def _play(scenes: Iterable[tuple[Callable[[T], None], str, *tuple[str, ...]]], world: T) -> None:
    for number, (show, title, *explanation) in enumerate(scenes, 1):
        print_lines([Text(), Text(f"{number}. {title}", style="bold reverse")])
        for line in explanation:
            print_text(line, "dim")
        print_text()
        show(world)


@contextlib.contextmanager
def _demo_ledger(settings: GlobalOptions) -> Generator[Ledger]:
    with contextlib.ExitStack() as stack:
        # One that only the environment names is not taken, so samples do not come into it by accident.
        if not settings.is_named:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="chatledger-demo-"))
            settings.location = str(Path(folder) / "data")
        yield stack.enter_context(ledger_at(settings, create=True))


def _import(ledger: Ledger) -> None:
    with ledger.context(actor="demo"):
        results = [ledger.import_chat(chat) for chat in sample_chats()]
    print_lines(chat_rows([chat for result in results if (chat := ledger.get_chat(result.chat_id))]))
    added = sum(result.messages_added for result in results)
    print_text()
    print_text(f"{count(added, 'new message')}, {count(ledger.position, 'event')} on the log.")


def _tree(ledger: Ledger) -> None:
    _draw(ledger, CHAT)
    print_lines(
        [Text(), Text("Long runs without forks are collapsed, so a chat of a million messages still fits:"), Text()]
    )
    _draw(ledger, "sensor")


def _chain(ledger: Ledger) -> None:
    branch = ledger.get_active_branch(CHAT)
    assert branch is not None, "a chat has an active branch"
    print_text(f"{CHAT}, branch {branch.name} *", "bold green")
    print_conversation(ledger.get_messages(CHAT), ledger.list_checkpoints(CHAT))


def _rewind(ledger: Ledger) -> None:
    with ledger.context(actor="ada"):
        branch = ledger.fork(CHAT, REWIND_TO)
        ledger.append(
            CHAT,
            [
                user("Can we do that by bicycle instead of the train?"),
                assistant(
                    "One way, yes: 55 km along the Gauja, mostly on quiet roads. Take the train back, bicycles ride for 2 €."
                ),
            ],
        )
    print_text(f"branch {branch.name} began at {REWIND_TO}, and is active now:")
    print_text()
    _draw(ledger, CHAT)


def _restore(ledger: Ledger) -> None:
    checkpoint = ledger.get_checkpoint(CHAT, CHECKPOINT)
    assert checkpoint is not None, "the sample has that checkpoint"
    with ledger.context(actor="ada"):
        ledger.set_active_branch(CHAT, "main")  # a fork is named after the active branch
        branch = ledger.fork(CHAT, checkpoint.message_id)
    print_text(f"branch {branch.name} * is at the checkpoint, and reads:", "bold green")
    print_conversation(ledger.get_messages(CHAT, limit=1), ledger.list_checkpoints(CHAT))
    others = [other for other in ledger.list_branches(CHAT) if other.name != branch.name]
    print_text()
    print_text(f"The other branches are as they were: {', '.join(other.name for other in others)}.")


def _history(ledger: Ledger) -> None:
    events = list(ledger.history(CHAT))
    hidden = len(events) - _SHOWN_EVENTS
    if hidden > 0:
        print_text(f"        {count(hidden, 'event')} before these", "dim")
    words = EventWords()
    lines = [event_line(event, words, with_chat=False) for event in events]
    print_lines(lines[max(hidden, 0) :])


def _rebuild(ledger: Ledger) -> None:
    before, began = answers(ledger), time.monotonic()
    ledger.rebuild()
    took_ms = (time.monotonic() - began) * 1000
    after = answers(ledger)
    print_text(f"Rebuilt from {count(ledger.position, 'event')} in {took_ms:.0f} ms.")
    same = sum(before[question] == after.get(question) for question in before)
    is_same = before == after
    verdict = "nothing changed" if is_same else "THE ANSWERS DIFFER, which is a bug: please report it"
    print_text(f"{same:,} of {len(before):,} answers are the same: {verdict}.", "bold green" if is_same else "bold red")


def _agents(ledger: Ledger) -> None:
    with ledger.context(actor="demo"):
        for thread in sample_threads():
            ledger.import_value(thread)
    show_thread(ledger, THREAD, limit=None, as_json=False)
    print_text()
    with ledger.context(actor="ada"):
        ledger.set_active_branch(CHAT, WORTH_READING)
    print_text(f"And {CHAT} goes on where it is worth reading: {WORTH_READING} is active again.")


def answers(ledger: Ledger) -> dict[str, Any]:
    """Return what the index answers: chats, messages, branches, checkpoints, the chain of each branch, and the drawing data."""
    chats = ledger.list_chats()
    answered: dict[str, Any] = {"chats": chats}
    for chat in chats:
        answered[f"{chat.id} whole"] = whole_chat(ledger, chat)
        answered[f"{chat.id} graph"] = ledger.graph(chat.id)
        for branch in ledger.list_branches(chat.id):
            answered[f"{chat.id} chain of {branch.name}"] = ledger.get_messages(chat.id, branch=branch.name)
    return answered


def _draw(ledger: Ledger, chat_id: str) -> None:
    print_tree(ledger.graph(chat_id), style=best_style(ascii_only=False))


_SCENES: Final[tuple[tuple[Callable[[Ledger], None], str, *tuple[str, ...]], ...]] = (
    (
        _import,
        "Import conversations",
        "A real NATS JetStream server runs in a directory of its own; each conversation becomes events on its log.",
    ),
    (
        _tree,
        "A conversation is a DAG",
        "Messages never change. An edited question or a second answer is a sibling, and a branch is a pointer to a head:",
        "main asks for the cost, main-v2 has another answer to that, inland an edited question. {first-plan} is a bookmark.",
    ),
    (_chain, "Walk a chain", "From the root to the head of the active branch, as a model would get it."),
    (
        _rewind,
        "Rewind, and go on from there",
        "fork() starts a branch at an earlier message and activates it; append() continues. The old branch keeps its head.",
    ),
    (
        _restore,
        "Restore a checkpoint",
        f"{{{CHECKPOINT}}} names a message. Restoring it is a branch at that message: nothing is undone.",
    ),
    (
        _history,
        "Read the history",
        "Each change is an immutable event, with its position, time, actor, and the hash of the event before it.",
    ),
    (
        _rebuild,
        "Throw the index away, and build it from the log",
        "Every answer so far came from an LMDB index. It is a cache: the log alone is the truth.",
    ),
    (
        _agents,
        "Read what an agent did",
        "Threads of LangGraph are streams too: which node ran when, side by side, what failed, and what waits for an answer.",
    ),
)
"""The scenes: the command, the heading above it, and the lines of explanation under that."""
