"""Adapters of frameworks, each next to the store that its framework brings: a turn added, all messages, the last 50, a list, a branch."""

import asyncio
import itertools
import json
import os
import sqlite3
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import chatledger
from chatledger import Ledger

from ..measure import Row, check_equal
from ..prose import Prose
from ..world import World

_LAST: Final = 50
_PROJECT: Final = "/project"
Call = Callable[[], object]


class Setting(NamedTuple):
    """Where the stores of one framework are: a ledger of its own, and a folder for what the framework writes."""

    ledger: Ledger
    folder: Path
    texts: list[str]
    size: int
    """Of the messages of a conversation, and of the conversations of a list."""
    run: Callable[[Awaitable[Any]], Any]
    stack: ExitStack
    """Closes what was opened, at the end."""


class Case(NamedTuple):
    """A framework: what its modules are, what its store is called, and what fills both and gives their calls."""

    name: str
    modules: tuple[str, ...]
    peer: str
    note: str
    fill: Callable[[Setting], tuple[Mapping[str, Call], Mapping[str, Call]]]


def adapters(world: World) -> Iterator[Row]:
    """One framework after the other, of those that are installed."""
    for case in _CASES:
        if all(find_spec(module) is not None for module in case.modules):
            yield from _of_framework(world, case)


def _of_framework(world: World, case: Case) -> Iterator[Row]:
    folder, count = world.folder(), world.sizes.chains[0]
    world.report(f"filling {case.name}")
    with ExitStack() as stack:
        loop = stack.enter_context(closing(asyncio.new_event_loop()))
        ledger = stack.enter_context(chatledger.open(folder / "ledger"))
        theirs = folder / "theirs"
        theirs.mkdir()

        talk = Prose(count, length=count)
        texts = [talk.text(at) for at in range(count)]
        setting = Setting(ledger, theirs, texts, count, loop.run_until_complete, stack)
        ours, others = case.fill(setting)
        for name in ours:
            if name in {"all messages", f"last {_LAST} messages"}:
                check_equal(f"{case.name}: {name}", ours[name](), others[name]())
            yield world.compare(
                ours[name],
                others[name],
                subject="adapters",
                name=f"{case.name}, {_told(name, count)}",
                peer=case.peer,
                note=case.note,
            )


def _told(name: str, count: int) -> str:
    return f"{name} of {count:,}" if name != "a turn added" else f"{name} to {count:,} messages"


def _openai(setting: Setting) -> tuple[Mapping[str, Call], Mapping[str, Call]]:
    from agents import SQLiteSession
    from agents.extensions.memory import AdvancedSQLiteSession

    from chatledger.adapters.openai_agents import LedgerSession

    run, texts = setting.run, iter(range(10**9))

    def item(text: str, role: str) -> Any:
        if role == "user":
            return {"role": role, "content": text}
        content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
        return {"type": "message", "role": role, "status": "completed", "content": content, "id": f"msg_{next(texts)}"}

    def turn(at: int) -> list[Any]:
        return [item(setting.texts[at], "user"), item(setting.texts[at + 1], "assistant")]

    plain = SQLiteSession("trip", setting.folder / "sessions.db")
    branching = AdvancedSQLiteSession(session_id="trip", db_path=setting.folder / "branches.db", create_tables=True)
    theirs_added = SQLiteSession("added", setting.folder / "sessions.db")
    for opened in (plain, branching, theirs_added):
        setting.stack.callback(opened.close)
    ours = LedgerSession("trip", setting.ledger)
    for at in range(0, setting.size, 2):
        given = turn(at)
        for session in (ours, plain, branching):
            run(session.add_items(given))
    names = itertools.count()
    added = LedgerSession("added", setting.ledger)
    run(added.add_items([one for at in range(0, setting.size, 2) for one in turn(at)]))
    run(theirs_added.add_items([one for at in range(0, setting.size, 2) for one in turn(at)]))
    branched = LedgerSession("branched", setting.ledger)
    run(branched.add_items([one for at in range(0, setting.size, 2) for one in turn(at)]))

    def branch(session: Any) -> None:
        run(session.create_branch_from_turn(setting.size // 4, f"b{next(names)}"))
        run(session.switch_to_branch("main"))

    return (
        {
            "a turn added": lambda: run(added.add_items(turn(0))),
            "all messages": lambda: _contents(run(ours.get_items())),
            f"last {_LAST} messages": lambda: _contents(run(ours.get_items(_LAST))),
            "branch from the middle, and back": lambda: branch(branched),
        },
        {
            "a turn added": lambda: run(theirs_added.add_items(turn(0))),
            "all messages": lambda: _contents(run(plain.get_items())),
            f"last {_LAST} messages": lambda: _contents(run(plain.get_items(_LAST))),
            "branch from the middle, and back": lambda: branch(branching),
        },
    )


def _contents(items: Any) -> list[Any]:
    return [item["content"] for item in items]


def _pydantic_ai(setting: Setting) -> tuple[Mapping[str, Call], Mapping[str, Call]]:
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse, TextPart, UserPromptPart

    from chatledger.adapters.pydantic_ai import LedgerConversationStore

    run, store = setting.run, LedgerConversationStore(setting.ledger)

    def messages(count: int) -> list[Any]:
        texts = [setting.texts[at] for at in range(count)]
        return [
            ModelResponse(parts=[TextPart(text)]) if at % 2 else ModelRequest(parts=[UserPromptPart(text)])
            for at, text in enumerate(texts)
        ]

    def conversation(name: str, count: int) -> Any:
        made = Conversation(conversation_id=name)
        made.messages.extend(messages(count))
        run(store.save(made))
        (setting.folder / f"{name}.json").write_bytes(ModelMessagesTypeAdapter.dump_json(made.messages))
        return made

    conversation("trip", setting.size)
    growing, theirs = conversation("added", setting.size), messages(setting.size)
    for number in range(setting.size):
        conversation(f"one-{number}", 2)

    def add() -> None:
        growing.messages.extend(messages(2))
        run(store.save(growing))

    def write() -> None:
        theirs.extend(messages(2))
        part = setting.folder / "added.part"
        with part.open("wb") as file:
            file.write(ModelMessagesTypeAdapter.dump_json(theirs))
            os.fsync(file.fileno())
        part.replace(setting.folder / "added.json")

    def read(last: int | None = None) -> list[str]:
        found = ModelMessagesTypeAdapter.validate_json((setting.folder / "trip.json").read_bytes())
        return _parts(found[-last:] if last else found)

    def entries() -> list[str]:
        return _parts([entry.message for entry in run(store.load_entries("trip", limit=_LAST))])

    return (
        {
            "a turn added": add,
            "all messages": lambda: _parts(run(store.load("trip")).messages),
            f"last {_LAST} messages": entries,
            "list of 50 conversations": lambda: len(run(store.list_conversations(limit=_LAST))),
        },
        {
            "a turn added": write,
            "all messages": read,
            f"last {_LAST} messages": lambda: read(_LAST),
            "list of 50 conversations": lambda: len(_newest(setting.folder, "*.json")),
        },
    )


def _parts(messages: Any) -> list[str]:
    return [part.content for message in messages for part in message.parts]


def _newest(folder: Path, pattern: str) -> list[str]:
    files = sorted(folder.glob(pattern), key=lambda file: file.stat().st_mtime, reverse=True)
    return [file.name for file in files[:_LAST]]


def _agent_framework(setting: Setting) -> tuple[Mapping[str, Call], Mapping[str, Call]]:
    from agent_framework import FileHistoryProvider, Message

    from chatledger.adapters.agent_framework import LedgerHistoryProvider

    run, ours = setting.run, LedgerHistoryProvider(setting.ledger)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is experimental
        theirs = FileHistoryProvider(setting.folder)

    def turn(at: int) -> list[Any]:
        return [Message("user", [setting.texts[at]]), Message("assistant", [setting.texts[at + 1]])]

    for name in ("trip", "added"):
        for at in range(0, setting.size, 2):
            given = turn(at)
            run(ours.save_messages(name, given))
            run(theirs.save_messages(name, given))
    return (
        {
            "a turn added": lambda: run(ours.save_messages("added", turn(0))),
            "all messages": lambda: [one.text for one in run(ours.get_messages("trip"))],
        },
        {
            "a turn added": lambda: run(theirs.save_messages("added", turn(0))),
            "all messages": lambda: [one.text for one in run(theirs.get_messages("trip"))],
        },
    )


def _llamaindex(setting: Setting) -> tuple[Mapping[str, Call], Mapping[str, Call]]:
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
    from sqlalchemy.ext.asyncio import create_async_engine

    from chatledger.adapters.llamaindex import LedgerAsyncChatStore

    run = setting.run
    ours = LedgerAsyncChatStore(setting.ledger)
    engine = create_async_engine(f"sqlite+aiosqlite:///{setting.folder}/chats.db")
    setting.stack.callback(lambda: run(engine.dispose()))
    theirs = SQLAlchemyChatStore("chats", async_engine=engine)

    def message(at: int) -> Any:
        return ChatMessage(setting.texts[at], role=MessageRole.ASSISTANT if at % 2 else MessageRole.USER)

    def turn() -> list[Any]:
        return [message(0), message(1)]

    stores: tuple[Any, Any] = (ours, theirs)
    for store in stores:
        for name in ("trip", "added"):
            run(store.add_messages(name, [message(at) for at in range(setting.size)]))
        for number in range(setting.size):
            run(store.add_messages(f"one-{number}", turn()))

    def calls(store: Any) -> dict[str, Call]:
        return {
            "a turn added": lambda: run(store.add_messages("added", turn())),
            "all messages": lambda: [one.content for one in run(store.get_messages("trip"))],
            f"last {_LAST} messages": lambda: [
                one.content for one in run(store.get_messages("trip", limit=_LAST, offset=setting.size - _LAST))
            ],
            "list of all conversations": lambda: len(run(store.get_keys())),
        }

    return calls(ours), calls(theirs)


def _claude(setting: Setting) -> tuple[Mapping[str, Call], Mapping[str, Call]]:
    import claude_agent_sdk as sdk

    from chatledger.adapters.claude import LedgerSessionStore

    run, store = setting.run, LedgerSessionStore(setting.ledger)
    project = sdk.project_key_for_directory(_PROJECT)
    os.environ["CLAUDE_CONFIG_DIR"] = str(setting.folder)
    files = setting.folder / "projects" / project
    files.mkdir(parents=True)

    def session(name: str, count: int) -> str:
        session_id = str(uuid5(NAMESPACE_URL, name))
        parent: str | None = None
        entries: list[Any] = []
        for at in range(count):
            role, uuid = ("assistant" if at % 2 else "user"), str(uuid5(NAMESPACE_URL, f"{name}:{at}"))
            blocks = [{"type": "text", "text": setting.texts[at]}]
            said = {"role": role, "content": blocks if at % 2 else setting.texts[at]}
            about = {"parentUuid": parent, "sessionId": session_id, "cwd": _PROJECT, "isSidechain": False}
            stamp = {"timestamp": "2026-11-20T10:00:00.000Z", "version": "2.1.0", "userType": "external"}
            entries.append({**about, **stamp, "type": role, "uuid": uuid, "message": said})
            parent = uuid
        run(store.append({"project_key": project, "session_id": session_id}, entries))
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (files / f"{session_id}.jsonl").write_text(lines, encoding="utf-8")
        return session_id

    trip = session("trip", setting.size)
    for number in range(setting.size):
        session(f"one-{number}", 2)

    def said(messages: Any) -> list[Any]:
        return [message.message["content"] for message in messages]

    ours_of = partial(sdk.get_session_messages_from_store, store, trip, _PROJECT)
    return (
        {
            "all messages": lambda: said(run(ours_of())),
            f"last {_LAST} messages": lambda: said(run(ours_of(limit=_LAST, offset=setting.size - _LAST))),
            "list of 50 conversations": lambda: len(run(sdk.list_sessions_from_store(store, _PROJECT, limit=_LAST))),
            "fork": lambda: run(sdk.fork_session_via_store(store, trip, _PROJECT)),
        },
        {
            "all messages": lambda: said(sdk.get_session_messages(trip, _PROJECT)),
            f"last {_LAST} messages": lambda: said(
                sdk.get_session_messages(trip, _PROJECT, limit=_LAST, offset=setting.size - _LAST)
            ),
            "list of 50 conversations": lambda: len(sdk.list_sessions(_PROJECT, limit=_LAST)),
            "fork": lambda: sdk.fork_session(trip, _PROJECT),
        },
    )


def _langgraph_store(setting: Setting) -> tuple[Mapping[str, Call], Mapping[str, Call]]:
    from langgraph.store.sqlite import SqliteStore

    from chatledger.langgraph import LedgerBaseStore

    ours = LedgerBaseStore(setting.ledger)
    connection = sqlite3.connect(setting.folder / "store.db", check_same_thread=False, isolation_level=None)
    setting.stack.callback(connection.close)
    theirs = SqliteStore(connection)
    theirs.setup()
    stores: tuple[Any, Any] = (ours, theirs)
    for store in stores:
        for number in range(setting.size):
            store.put(("users", f"u{number}"), "name", {"text": setting.texts[number]})
            store.put(("memories",), f"m{number}", {"text": setting.texts[number]})

    def calls(store: Any) -> dict[str, Call]:
        return {
            "an item replaced": lambda: store.put(("memories",), "m7", {"text": setting.texts[7]}),
            "an item read": lambda: store.get(("memories",), "m9").value,
            "50 items of a namespace": lambda: len(store.search(("memories",), limit=_LAST)),
            "50 namespaces": lambda: len(store.list_namespaces(prefix=("users",), limit=_LAST)),
        }

    return calls(ours), calls(theirs)


_CASES: Final = (
    Case(
        "OpenAI Agents SDK",
        ("agents",),
        "SQLiteSession",
        "branches beside AdvancedSQLiteSession, which copies what the branch begins with",
        _openai,
    ),
    Case(
        "Pydantic AI",
        ("pydantic_ai",),
        "a JSON file each",
        "the framework brings a store in memory only; a file is written whole, synced and renamed; a list is of names",
        _pydantic_ai,
    ),
    Case("Claude Agent SDK", ("claude_agent_sdk",), "its transcripts", "read by the functions of the SDK", _claude),
    Case(
        "Agent Framework",
        ("agent_framework",),
        "FileHistoryProvider",
        "which appends to a file and does not sync it",
        _agent_framework,
    ),
    Case(
        "LlamaIndex",
        ("llama_index.core", "aiosqlite"),
        "SQLAlchemyChatStore",
        "on SQLite by aiosqlite",
        _llamaindex,
    ),
    Case(
        "LangGraph's Store", ("langgraph.store.sqlite",), "SqliteStore", "without an index of vectors", _langgraph_store
    ),
)
