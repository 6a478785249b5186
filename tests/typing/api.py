"""Types of the public API, as type checkers must see them. Checked by mypy and pyright, never run."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from typing import Any, assert_type

import chatledger
from chatledger import (
    ANY,
    AsyncFeed,
    AsyncLedger,
    AsyncLedgerView,
    Branch,
    Chat,
    Checkpoint,
    ContextEngine,
    Divergence,
    Feed,
    FeedInfo,
    Graph,
    HeadConflictError,
    Ledger,
    LedgerView,
    Message,
    NewMessage,
    Page,
    Projection,
    ProjectionInfo,
    ProjectionRows,
    ProjectionView,
    Recorded,
    Resolved,
    SearchHit,
    SearchHits,
    Versions,
    admin,
    assistant,
    user,
)
from chatledger.domain.context.fragments import Fragment
from chatledger.drawing import BranchPointChild, BranchPointPage, RowLine, RowPoint, RowStrip, RowWindow
from chatledger.forms import Form
from chatledger.importers import ImportedChat, ImportResult, Problem, detect_format, import_chats, read_chats
from chatledger.testing import MemoryLog, check_log, check_projection
from chatledger.tokens import CachePlan


def opening() -> None:
    assert_type(chatledger.open(), Ledger)
    assert_type(chatledger.open("memory:", index="./index", durability="fast", create=True, timeout_s=5), Ledger)
    assert_type(chatledger.open_async(), AsyncLedger)
    assert_type(chatledger.__version__, str)
    assert_type(chatledger.open("./data", read_only=True), Ledger)
    with chatledger.open() as ledger:
        assert_type(ledger, Ledger)
        assert_type(ledger.location, str)
        assert_type(ledger.close(), None)
    chatledger.open(durability="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    chatledger.open(indx="./index")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    chatledger.open_async(indx="./index")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    print(chatledger.nonsense)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    chatledger.open("memory:", "./index")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def looking_after() -> None:
    assert_type(admin.diagnose("./chatledger-data"), admin.Diagnosis)
    assert_type(admin.repair("./chatledger-data", backup="./backup"), admin.Repair)
    assert_type(admin.restore("./backup", "./restored"), admin.Backup)
    assert_type(admin.check_backup("./backup"), admin.Backup)


def contracts() -> None:
    class Own(Projection):
        name = "own"

        def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
            rows.add(recorded.type)

    assert_type(check_projection(Own), None)
    assert_type(check_projection(Own, story=lambda ledger: ledger.create_chat("trip", "ada")), None)
    assert_type(check_log(lambda: closing(MemoryLog())), None)
    check_projection(Own())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def chats(ledger: Ledger) -> None:
    assert_type(ledger.create_chat("trip", "ada", title="Riga", metadata={"kind": "plan"}), Chat)
    assert_type(ledger.upsert_chat("trip", "ada"), Chat)
    assert_type(ledger.get_chat("trip"), Chat | None)
    assert_type(ledger.update_chat("trip", title=None), Chat)
    assert_type(ledger.update_chat("trip", updater=lambda chat: {"title": chat.title}), Chat)
    assert_type(ledger.list_chats(user_id="ada", metadata=("kind", "plan"), limit=10), list[Chat])
    assert_type(ledger.list_chats(after="trip"), list[Chat])
    assert_type(ledger.list_chats(metadata={"kind": "plan", "year": 2026}, order="created", ascending=True), list[Chat])
    ledger.list_chats(order="title")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(ledger.count_chats(user_id="ada", metadata={"kind": "plan"}), int)
    assert_type(ledger.create_chat(user_id="ada"), Chat)
    assert_type(ledger.delete_chat("trip", user_id="ada"), bool)


def messages(ledger: Ledger) -> None:
    assert_type(user("Hello"), Fragment)
    assert_type(assistant("Hello", id="m1"), Fragment)
    assert_type(ledger.append("trip", [user("Hello")]), list[Message])
    assert_type(ledger.append("trip", iter([user("Hello")]), branch="main", expected_head=None), list[Message])
    assert_type(ledger.append("trip", [], expected_head="m1"), list[Message])
    assert_type(ledger.add_messages("trip", [NewMessage("tool", {"a": [1, None]}, parent_id="m1")]), list[Message])
    assert_type(ledger.get_message("m1"), Message | None)
    assert_type(ledger.get_messages("trip", branch="main", limit=10, before="m1"), list[Message])
    assert_type(ledger.get_chain("m1", limit=10), list[Message])
    assert_type(ledger.has_children("m1"), bool)
    assert_type(ledger.children("m1"), list[Message])
    assert_type(ledger.siblings("m1"), list[Message])
    assert_type(ledger.common_ancestor("m1", "m2"), Message | None)
    assert_type(ledger.diff("m1", "m2"), Divergence)
    assert_type(ledger.diff("m1", "m2").common, Message | None)
    assert_type(ledger.append("trip", {"role": "user", "content": "Hello"}, on_existing="skip"), list[Message])
    assert_type(ledger.append("trip", [{"role": "user", "content": "Hello"}], chat_metadata={"a": 1}), list[Message])
    assert_type(ledger.add_messages("trip", [user("Hello"), {"role": "user", "content": "Hello"}]), list[Message])
    ledger.append("trip", [], on_existing="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ledger.append("trip", [1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    assert_type(ledger.append("trip", ["Hello", {"role": "user", "content": "Hello"}], form="openai"), list[Message])
    NewMessage("user", {"role": "user", "content": "Hello"}, "openai")
    NewMessage("user", "Hello", form=None)


def engine(ledger: Ledger, own: Form) -> None:
    context = ContextEngine(ledger, "trip", "ada").set(user("Hello"), {"role": "user", "content": "Hello"})
    assert_type(context.resolve(form="anthropic"), Resolved)
    assert_type(context.resolve(form=own), Resolved)
    assert_type(context.resolve(max_tokens=4_000, counter="o200k_base", cache="openai").cache, CachePlan | None)
    context.resolve(cache="google")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(context.compact(lambda messages: messages[0].text, keep_last=2), Branch)
    context.resolve(form="openia")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def message(found: Message) -> None:
    assert_type(found.id, str)
    assert_type(found.parent_id, str | None)
    assert_type(found.text, str)
    assert_type(found.created_at, int)
    found.text = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def branches(ledger: Ledger) -> None:
    assert_type(ledger.create_branch("trip", "idea", None, activate=True), Branch)
    assert_type(ledger.fork("trip", "m1", activate=False), Branch)
    assert_type(ledger.get_branch("trip", "main"), Branch | None)
    assert_type(ledger.get_active_branch("trip"), Branch | None)
    assert_type(ledger.set_active_branch("trip", "main"), Branch)
    assert_type(ledger.list_branches("trip"), list[Branch])
    assert_type(ledger.rename_branch("trip", "main", "Riga"), Branch)
    assert_type(ledger.delete_branch("trip", "main"), bool)
    assert_type(ledger.versions("m1"), Versions)
    assert_type(ledger.get_rows("trip", first=10, limit=10, around="m1"), RowWindow)
    assert_type(ledger.get_rows("trip").rows[0].parents, list[RowPoint])
    assert_type(ledger.list_bundled_lines("trip", 3, along="main", limit=5), list[BranchPointChild])
    assert_type(ledger.list_branch_points("trip", after=3, above=10, limit=5), BranchPointPage)
    assert_type(ledger.get_row_numbers("trip", ["m1"]), dict[str, int])
    assert_type(ledger.get_row_strip("trip", height=100), RowStrip)
    assert_type(ledger.get_row_line("trip", "m1"), RowLine)
    assert_type(ledger.versions("m1").shown, str | None)
    assert_type(ledger.prove(["m1"], key="anchor.key", audience="bob"), str)
    assert_type(admin.check_excerpt("token", "anchor.pub").messages, tuple[Message, ...])
    assert_type(ledger.still_valid("token"), admin.ExcerptStanding)
    assert_type(ledger.branches_of("m1"), list[Branch])
    assert_type(ledger.show("m1"), Branch)
    assert_type(ledger.get_page("trip", branch="main", limit=10, before="m1"), Page)
    assert_type(ledger.get_page("trip").entries[0].versions, Versions)
    assert_type(ledger.move_head("trip", "main", "m1", expected=ANY), bool)
    assert_type(ledger.move_head("trip", "main", None, expected="m1", on_conflict="return"), bool)
    ledger.move_head("trip", "main", "m1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def checkpoints(ledger: Ledger) -> None:
    assert_type(ledger.set_checkpoint("trip", "plan", "m1"), Checkpoint)
    assert_type(ledger.get_checkpoint("trip", "plan"), Checkpoint | None)
    assert_type(ledger.list_checkpoints("trip"), list[Checkpoint])
    assert_type(ledger.delete_checkpoint("trip", "plan"), bool)


def searching(ledger: Ledger) -> None:
    hits = ledger.search("old town", chat_id="trip", user_id="ada", roles={"user"}, branch="main", limit=None, offset=5)
    assert_type(hits, SearchHits)
    assert_type(hits.is_degraded, bool)
    assert_type(ledger.search("", since=0, until=datetime(2026, 3, 2, tzinfo=UTC)), SearchHits)
    for hit in hits:
        assert_type(hit, SearchHit)
        assert_type(hit.message, Message)
        assert_type(hit.rank, float)
        assert_type(hit.snippet, str)
        assert_type(hit.parts, list[tuple[str, bool]])
    assert_type(hits[:3], list[SearchHit])
    ledger.search("old", "trip")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ledger.search("old", since=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def the_log(ledger: Ledger) -> None:
    assert_type(ledger.history("trip", after=1, up_to=10), Iterator[Recorded])
    filtered = ledger.history(
        user_id="ada", topics={"chat_deleted"}, actor="bob", since=datetime(2026, 3, 2, tzinfo=UTC)
    )
    assert_type(filtered, Iterator[Recorded])
    assert_type(ledger.history(since=5, until=6), Iterator[Recorded])
    ledger.history(since=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(ledger.for_user("ada"), Ledger)
    ledger.for_user(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(ledger.feed(after=0, topics={"chat_created"}, follow=False), Feed)
    with ledger.feed(name="indexer", share=(0, 2), auto_ack=False) as feed:
        for event in feed:
            assert_type(event, Recorded)
            assert_type(feed.ack(event.position), None)
        assert_type(feed.position, int)
    for info in ledger.feeds():
        assert_type(info.share, tuple[int, int] | None)
    assert_type(ledger.ack_feed("indexer", 7, share=(0, 2)), FeedInfo)
    assert_type(ledger.forget_feed("indexer"), bool)
    assert_type(ledger.forget_backup("backup"), bool)
    ledger.feed(share=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(ledger.position, int)
    assert_type(ledger.last_position(), int)
    assert_type(ledger.sync(7, timeout_s=1), int)
    assert_type(ledger.wait(7), bool)
    assert_type(ledger.rebuild(progress=print), None)
    assert_type(ledger.rebuild(only="search"), None)
    with ledger.projection("words") as rows:
        assert_type(rows, ProjectionView)
        assert_type(rows.of("c"), ProjectionView)
        assert_type(rows.position, int)
        for key, _ in rows.range("ada", after=("ada", 1), reverse=True, limit=2):
            assert_type(key, str | int | tuple[str | int, ...])
    assert_type(ledger.projections(), list[ProjectionInfo])
    assert_type(ledger.drop_projection("words"), bool)
    assert_type(ledger.graph("trip"), Graph)
    assert_type(ledger.context(actor="ada", command_id="c1"), AbstractContextManager[None])


def time_travel(ledger: Ledger, view: AsyncLedgerView) -> None:
    with ledger.as_of(12) as past:
        assert_type(past, LedgerView)
        assert_type(past.get_chat("trip"), Chat | None)
        assert_type(past.get_messages("trip", branch="main", limit=3), list[Message])
        assert_type(past.search("old town", user_id="ada"), SearchHits)
        assert_type(past.history("trip"), Iterator[Recorded])
        assert_type(past.position, int)
        past.append("trip", [])  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert_type(ledger.as_of(datetime(2026, 3, 2, tzinfo=UTC)), LedgerView)
    assert_type(view.history("trip"), AsyncGenerator[Recorded])
    ledger.as_of(1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def recorded(event: Recorded) -> None:
    assert_type(event.position, int)
    assert_type(event.chat_id, str)
    assert_type(event.actor, str | None)
    assert_type(event.to_dict(), dict[str, Any])


def interchange(ledger: Ledger, problems: list[Problem]) -> None:
    assert_type(detect_format("file.json"), str)
    for chat in read_chats("file.json", on_problem=problems.append):
        assert_type(chat, ImportedChat)
        assert_type(ledger.import_chat(chat), ImportResult)
    for one in import_chats(ledger, read_chats("file.json", on_problem=problems.append)):
        assert_type(one.get_result(), ImportResult)
    assert_type(ledger.export_chat("trip"), ImportedChat)


def errors(ledger: Ledger) -> None:
    try:
        ledger.append("trip", [user("Hello")])
    except HeadConflictError as error:
        assert_type(error.expected, str | None)
        assert_type(error.actual, str | None)


async def asynchronous() -> None:
    async with chatledger.open_async("memory:") as ledger:
        assert_type(ledger, AsyncLedger)
        assert_type(await ledger.create_chat("trip", "ada", title="Riga"), Chat)
        assert_type(await ledger.get_chat("trip"), Chat | None)
        assert_type(await ledger.append("trip", [user("Hello")], expected_head=None), list[Message])
        assert_type(await ledger.get_messages("trip", limit=10), list[Message])
        assert_type(await ledger.fork("trip", "m1"), Branch)
        assert_type(await ledger.delete_branch("trip", "main"), bool)
        assert_type(await ledger.get_page("trip"), Page)
        assert_type(await ledger.move_head("trip", "main", "m1", expected=ANY), bool)
        assert_type(await ledger.get_position(), int)
        assert_type(await ledger.position, int)
        assert_type(await ledger.wait(5, timeout_s=1), bool)
        assert_type(await chatledger.open_async(), AsyncLedger)
        assert_type(await ledger.as_of(12), AsyncLedgerView)
        async with ledger.as_of(12) as past:
            assert_type(past, AsyncLedgerView)
            assert_type(await past.position, int)
        assert_type(await ledger.run(lambda sync: sync.position), int)
        assert_type(await ledger.search("riga", user_id="ada"), SearchHits)
        assert_type(await ledger.rebuild(only="search"), None)
        assert_type(ledger.history("trip"), AsyncGenerator[Recorded])
        assert_type(ledger.for_user("ada"), AsyncLedger)
        assert_type(ledger.feed(follow=False), AsyncFeed)
        async with ledger.feed(name="indexer") as feed:
            assert_type(await feed.ack(), None)
            assert_type(feed.position, int | None)
        assert_type(await ledger.feeds(), list[FeedInfo])
        async for event in ledger.feed(after=0):
            assert_type(event, Recorded)
        with ledger.context(actor="ada"):
            assert_type(await ledger.delete_chat("trip"), bool)
        await ledger.append("trip")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
