"""`demo --sync`: a laptop, an office and a phone, each with a ledger of its own, between which a conversation travels."""

import secrets
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from chatledger.domain.extras import needing

from ...exchange.remote import RemoteLedger
from ...ledger.drafts import assistant, user
from ...ledger.ledger import Ledger
from ...ledger.open import open as open_ledger
from ...ledger.open import open_async
from .drawing import best_style, print_tree
from .output import count, print_text
from .show import print_conversation
from .travel import print_pull

CHAT: Final = "riga"
_BENS: Final = "ben-1"
_PASSPORT: Final = "m3"
_KEEPS_PULLING: Final = 5
"""More rounds than three ledgers need until none has anything new for another one."""


class Ledgers(NamedTuple):
    """The three ledgers, and the office as the phone sees it: behind a server, by a key of Ada's."""

    laptop: Ledger
    office: Ledger
    phone: Ledger
    server: RemoteLedger


@contextmanager
def three_ledgers() -> Generator[Ledgers]:
    """A laptop's and an office's ledger in directories, the office's served over HTTP, and a phone's in an SQLite file."""
    with needing("server", "demo --sync"):
        from ..http.access import Principal
        from ..http.app import create_app
        from ..http.serving import serving

    key = secrets.token_urlsafe()
    ada = Principal(user_id="ada", scopes=frozenset({"read", "write"}))

    def authenticate(headers: Mapping[str, str]) -> Principal | None:
        return (
            ada if secrets.compare_digest(headers.get("authorization", "").encode(), f"Bearer {key}".encode()) else None
        )

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chatledger-demo-")))
        opening = open_async(folder / "office")
        url = stack.enter_context(serving(create_app(opening, closes_ledger=True, authenticate=authenticate)))
        assert opening.opened is not None, "the server opened it"
        laptop = stack.enter_context(open_ledger(folder / "laptop"))
        phone = stack.enter_context(open_ledger(f"sqlite:///{folder / 'phone.db'}"))
        yield Ledgers(laptop, opening.opened, phone, RemoteLedger(url, key=key))


def _offline(ledgers: Ledgers) -> None:
    ledgers.laptop.create_chat(CHAT, "ada", title="A weekend in Riga")
    ledgers.laptop.append(
        CHAT,
        [
            user("Plan a weekend in Riga.", id="m1"),
            assistant("The old town on Saturday, the market halls on Sunday.", id="m2"),
            user("My passport is C01X00T47, does that need a visa?", id=_PASSPORT),
        ],
    )
    ledgers.office.create_chat(_BENS, "ben", title="What the office keeps for itself")
    print_pull("pushed from the laptop", ledgers.laptop.push(ledgers.office, name="laptop"))


def _both(ledgers: Ledgers) -> None:
    ledgers.laptop.append(CHAT, [assistant("No visa. And take the night train.", id="laptop-4")])
    ledgers.office.append(CHAT, [assistant("No visa. And fly on Friday.", id="office-4")])
    print_pull("pushed from the laptop", ledgers.laptop.push(ledgers.office, name="laptop"))
    print_text()
    _draw(ledgers.office)


def _merge(ledgers: Ledgers) -> None:
    ledgers.office.merge(CHAT, "laptop/main", summary="The laptop found a night train as well: compare both.")
    print_pull("pulled by the laptop", ledgers.laptop.pull(ledgers.office, name="office", chat_ids=[CHAT]))
    print_text()
    _draw(ledgers.laptop)


def _phone(ledgers: Ledgers) -> None:
    print_pull("pulled by the phone", ledgers.phone.pull(ledgers.server, name="office"))
    ledgers.phone.append(CHAT, [user("The night train then. When does it leave?", id="phone-6")])
    print_pull("pushed from the phone", ledgers.phone.push(ledgers.server, name="phone"))


def _redact(ledgers: Ledgers) -> None:
    ledgers.office.redact(_PASSPORT, reason="a passport number")
    print_pull("pulled by the phone", ledgers.phone.pull(ledgers.server, name="office"))
    print_pull("pulled by the laptop", ledgers.laptop.pull(ledgers.office, name="office", chat_ids=[CHAT]))
    print_text()
    print_conversation(ledgers.phone.get_messages(CHAT, branch="main"))


def _same(ledgers: Ledgers) -> None:
    for _ in range(_KEEPS_PULLING):
        pulled = [
            ledgers.laptop.pull(ledgers.office, name="office", chat_ids=[CHAT]),
            ledgers.office.pull(ledgers.laptop, name="laptop"),
            ledgers.phone.pull(ledgers.server, name="office"),
            ledgers.phone.push(ledgers.server, name="phone"),
        ]
        if not any(report.chats for report in pulled):
            break
    told = [_told(ledger) for ledger in (ledgers.laptop, ledgers.office, ledgers.phone)]
    is_same = told == told[:1] * len(told)
    verdict = "all three tell the same" if is_same else "THEY DIFFER, which is a bug: please report it"
    print_text(
        f"{count(len(told[0]), 'message')} on the laptop, in the office and on the phone: {verdict}.",
        "bold green" if is_same else "bold red",
    )


def _told(ledger: Ledger) -> dict[str, tuple[str | None, str]]:
    """Each message that a ledger has of the chat: what it follows, and its text."""
    return {message.id: (message.parent_id, message.text) for message in ledger.export_chat(CHAT).messages}


def _draw(ledger: Ledger) -> None:
    print_tree(ledger.graph(CHAT), style=best_style(ascii_only=False))


SCENES: Final[tuple[tuple[Callable[[Ledgers], None], str, *tuple[str, ...]], ...]] = (
    (
        _offline,
        "Write offline, push when there is a network",
        "The laptop has a ledger of its own. What the office lacks is pushed: the same events, with the same ids, times and hashes.",
    ),
    (
        _both,
        "Both went on meanwhile",
        "Nobody wins by accident: the office's main goes on as it was, and the laptop's is beside it, as laptop/main.",
    ),
    (
        _merge,
        "The office merges, the laptop pulls",
        "A message with two parents brings both together; for the laptop, main only moves forward.",
    ),
    (
        _phone,
        "A phone, over HTTP",
        "The office's ledger is behind a server; its key is Ada's, so the phone gets her chat, and not Ben's.",
    ),
    (
        _redact,
        "What is redacted is redacted everywhere",
        "The office erases a passport number. The next pulls erase it on the other two as well, from their logs too.",
    ),
    (_same, "Pull until nothing changes", "In any order, from any of them: all end with the same messages."),
)
"""The scenes: what is done, the heading above it, and the lines of explanation under that."""
