"""ChatKit's store: the contract of adapters, pages, replaced and deleted items, attachments, users, and its server at work."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("chatkit")

from chatkit.server import ChatKitServer, StreamingResult
from chatkit.store import NotFoundError
from chatkit.types import (
    ClientToolCallItem,
    ClosedStatus,
    EndOfTurnItem,
    FileAttachment,
    HiddenContextItem,
    ImageAttachment,
    ThoughtTask,
    ThreadItem,
    ThreadItemDoneEvent,
    ThreadMetadata,
    ThreadStreamEvent,
    UserMessageItem,
    WidgetItem,
    Workflow,
    WorkflowItem,
)
from chatkit.widgets import Card, Text
from tests.support.adapters.chatkit import THEN, assistant_item, text_of, user_item

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.adapters.chatkit import LedgerStore
from chatledger.errors import AccessDeniedError, InvalidValueError, OwnerMismatchError
from chatledger.testing import check_adapter_killed

Check = Callable[[Ledger, LedgerStore[Any]], Coroutine[Any, Any, None]]


def on_ledger(check: Check) -> None:
    """Run a check on a ledger in memory."""
    with chatledger.open("memory:") as ledger:
        asyncio.run(check(ledger, LedgerStore(ledger)))
        ledger.verify()


async def texts(store: LedgerStore[Any], order: str = "asc", thread_id: str = "trip") -> list[str]:
    page = await store.load_thread_items(thread_id, None, 1000, order, None)
    return [text_of(item) for item in page.data]


async def begun(store: LedgerStore[Any], *said: str) -> None:
    """A thread in which a user and an assistant speak in turn."""
    await store.save_thread(ThreadMetadata(id="trip", created_at=THEN), None)
    items = [(assistant_item if place % 2 else user_item)(f"i{place}", text) for place, text in enumerate(said)]
    await store.add_thread_items("trip", items, None)


@pytest.mark.soak
def test_what_is_stored_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.chatkit:ChatKitDriver", rounds=2)


async def _threads(ledger: Ledger, store: LedgerStore[Any]) -> None:
    with pytest.raises(NotFoundError):
        await store.load_thread("trip", None)
    thread = ThreadMetadata(
        id="trip",
        title="Riga",
        created_at=THEN,
        allowed_image_domains=["example.org"],
        metadata={"mood": {"good": True}},
    )
    await store.save_thread(thread, None)
    assert await store.load_thread("trip", None) == thread
    position = ledger.position
    await store.save_thread(thread, None)
    assert ledger.position == position, "an equal thread is no write"
    closed = thread.model_copy(update={"title": "Riga, at last", "status": ClosedStatus(reason="over"), "metadata": {}})
    await store.save_thread(closed, None)
    assert await store.load_thread("trip", None) == closed
    assert ledger.position == position + 1
    ledger.create_chat("notes", "ada", title="By others")
    found = await store.load_thread("notes", None)
    assert (found.title, found.status.type, found.metadata) == ("By others", "active", {})
    assert (await store.load_thread_items("notes", None, 5, "asc", None)).data == []


def test_threads() -> None:
    on_ledger(_threads)


async def _pages_of_threads(ledger: Ledger, store: LedgerStore[Any]) -> None:
    for number in range(5):
        at = THEN.replace(hour=number)
        await store.save_thread(ThreadMetadata(id=f"t{number}", created_at=at), None)
    await store.add_thread_item("t1", user_item("i", "late", "t1"), None)
    newest = await store.load_threads(2, None, "desc", None)
    assert ([one.id for one in newest.data], newest.has_more, newest.after) == (["t4", "t3"], True, "t3")
    rest = await store.load_threads(3, newest.after, "desc", None)
    assert ([one.id for one in rest.data], rest.has_more, rest.after) == (["t2", "t1", "t0"], False, None)
    oldest = await store.load_threads(2, None, "asc", None)
    assert [one.id for one in oldest.data] == ["t0", "t1"]
    with pytest.raises(NotFoundError):
        await store.load_threads(2, "none", "asc", None)
    with pytest.raises(InvalidValueError):
        await store.load_threads(2, None, "sideways", None)


def test_pages_of_threads() -> None:
    on_ledger(_pages_of_threads)


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_of_items(order: str, limit: int) -> None:
    async def check(ledger: Ledger, store: LedgerStore[Any]) -> None:
        await begun(store, *(str(number) for number in range(90)))
        for number in (3, 4, 5, 60, 88):
            await store.delete_thread_item("trip", f"i{number}", None)
        for number in range(20, 50):
            ledger.annotate("trip", f"trip:i{number}", replaced_by="trip:sum" if number > 20 else None)
            if number == 20:
                summary = NewMessage("assistant", "summary", id="trip:sum", parent_id="trip:i19")
                ledger.add_messages("trip", summary)
        ledger.annotate("trip", "trip:i20", replaced_by="trip:sum")
        gone = {3, 4, 5, 60, 88, *range(20, 49)}
        expected = ["summary" if number == 49 else str(number) for number in range(90) if number not in gone]
        found: list[str] = []
        after: str | None = None
        while True:
            page = await store.load_thread_items("trip", after, limit, order, None)
            found += [text_of(item) for item in page.data]
            assert page.has_more == (page.after is not None)
            if not page.has_more:
                break
            assert len(page.data) == limit
            after = page.after
        assert found == (expected if order == "asc" else expected[::-1])

    on_ledger(check)


async def _replaced(ledger: Ledger, store: LedgerStore[Any]) -> None:
    await begun(store, "a", "b", "c")
    before = ledger.position
    for text in ("B", "B", "b", "bb"):
        await store.save_item("trip", assistant_item("i1", text), None)
        assert await texts(store) == ["a", text, "c"]
        assert text_of(await store.load_item("trip", "i1", None)) == text
    assert ledger.position == before + 6, "two events for each change, none for an equal item"
    assert [hit.message.text for hit in ledger.search("bb")] == ["bb"]
    assert ledger.search("B") == []
    with ledger.as_of(before) as then:
        assert [message.text for message in then.get_messages("trip")] == ["a", "b", "c"]
    await store.save_item("trip", user_item("i9", "d"), None)
    assert await texts(store, "desc") == ["d", "c", "bb", "a"]
    await store.delete_thread_item("trip", "i1", None)
    assert await texts(store) == ["a", "c", "d"]
    assert ledger.search("bb") == []
    with pytest.raises(NotFoundError):
        await store.load_item("trip", "i1", None)
    await store.save_item("trip", assistant_item("i1", "bb"), None)
    assert await texts(store) == ["a", "bb", "c", "d"], "saved again, it is there again"


def test_items_are_replaced_in_their_places() -> None:
    on_ledger(_replaced)


async def _deleted(ledger: Ledger, store: LedgerStore[Any]) -> None:
    await begun(store, "a", "b", "c", "d")
    await store.delete_thread_item("trip", "i1", None)
    await store.delete_thread_item("trip", "i3", None)
    await store.delete_thread_item("trip", "i3", None)
    await store.delete_thread_item("trip", "none", None)
    await store.delete_thread_item("none", "i1", None)
    assert await texts(store) == ["a", "c"]
    await store.add_thread_item("trip", assistant_item("i4", "e"), None)
    assert [one.id for one in ledger.children("trip:i2")] == ["trip:i3", "trip:i4"], "versions of an answer"
    await store.delete_thread_item("trip", "i4", None)
    await store.delete_thread_item("trip", "i2", None)
    assert await texts(store) == ["a"]


def test_deleted_items_stay_in_the_history() -> None:
    on_ledger(_deleted)


async def _kinds(ledger: Ledger, store: LedgerStore[Any]) -> None:
    await begun(store)
    names: dict[str, Any] = {"thread_id": "trip", "created_at": THEN}
    file = FileAttachment(id="atc_1", name="plan.pdf", mime_type="application/pdf", thread_id="trip", metadata={"a": 1})
    call = ClientToolCallItem(id="c", call_id="c1", name="map", arguments={"zoom": 3}, **names)
    items: list[ThreadItem] = [
        user_item("u", "Look").model_copy(update={"attachments": [file], "quoted_text": "one\ntwo"}),
        call,
        WidgetItem(id="w", widget=Card(children=[Text(value="hi")]), copy_text="hi", **names),
        WorkflowItem(id="f", workflow=Workflow(type="reasoning", tasks=[ThoughtTask(content="Hm.")]), **names),
        HiddenContextItem(id="h", content={"secret": [1]}, **names),
        EndOfTurnItem(id="e", **names),
    ]
    await store.add_thread_items("trip", items, None)
    page = await store.load_thread_items("trip", None, 10, "asc", None)
    assert [one.model_dump(mode="json") for one in page.data] == [one.model_dump(mode="json") for one in items]
    assert await store.load_item("trip", "w", None) == items[2]
    assert {message.form for message in ledger.get_messages("trip")} == {"chatkit"}
    parts = [message.parts for message in ledger.get_messages("trip")]
    assert [part["type"] for part in parts[0]] == ["text", "text", "data-chatkit"]
    assert parts[0][0]["text"] == "> one\n> two"
    assert (parts[1][0]["toolName"], parts[1][0]["state"]) == ("map", "input-available")
    assert parts[3] == [{"type": "reasoning", "text": "Hm."}]
    assert parts[4] == [{"type": "text", "text": '{"secret":[1]}'}]
    done = call.model_copy(update={"status": "completed", "output": {"seen": True}})
    await store.save_item("trip", done, None)
    assert await store.load_item("trip", "c", None) == done


def test_items_of_all_kinds_come_back_as_they_were() -> None:
    on_ledger(_kinds)


async def _others(ledger: Ledger, store: LedgerStore[Any]) -> None:
    ledger.create_chat("trip", "ada")
    call = {
        "type": "tool-birds",
        "toolCallId": "c1",
        "state": "output-available",
        "input": {},
        "output": "A magpie",
    }
    parts = [{"type": "reasoning", "text": "Hm."}, call]
    ledger.append(
        "trip",
        [
            NewMessage("system", "Be brief.", id="s"),
            NewMessage("user", "Which bird?", id="u"),
            NewMessage("assistant", {"id": "a", "role": "assistant", "parts": parts}, id="a"),
            NewMessage("assistant", "A magpie.", id="b"),
        ],
    )
    page = await store.load_thread_items("trip", None, 10, "asc", None)
    assert [(one.id, one.type) for one in page.data] == [
        ("s", "sdk_hidden_context"),
        ("u", "user_message"),
        ("a", "workflow"),
        ("b", "assistant_message"),
    ]
    did = page.data[2]
    assert isinstance(did, WorkflowItem)
    assert [getattr(task, "content", None) for task in did.workflow.tasks] == ["Hm.", "A magpie"]
    assert (await store.load_thread_items("trip", "u", 1, "asc", None)).data[0].id == "a"
    await store.save_item("trip", assistant_item("b", "A wagtail."), None)
    assert text_of(await store.load_item("trip", "b", None)) == "A wagtail."


def test_what_others_wrote_comes_as_items() -> None:
    on_ledger(_others)


async def _attachments(ledger: Ledger, store: LedgerStore[Any]) -> None:
    image = ImageAttachment.model_validate(
        {"id": "atc_1", "name": "bird.png", "mime_type": "image/png", "preview_url": "https://example.org/bird.png"}
    )
    await store.save_attachment(image, None)
    assert await store.load_attachment("atc_1", None) == image
    placed = image.model_copy(update={"thread_id": "trip"})
    await store.save_attachment(placed, None)
    assert await store.load_attachment("atc_1", None) == placed
    assert (await store.load_threads(10, None, "desc", None)).data == [], "an attachment is no thread"
    await begun(store)
    await store.add_thread_item("trip", user_item("u", "Look").model_copy(update={"attachments": [placed]}), None)
    await store.delete_thread("trip", None)
    with pytest.raises(NotFoundError):
        await store.load_attachment("atc_1", None)
    assert not any("bird.png" in repr(recorded.to_dict()) for recorded in ledger.history())
    await store.delete_attachment("atc_1", None)


def test_attachments() -> None:
    on_ledger(_attachments)


async def _users(ledger: Ledger, _store: LedgerStore[Any]) -> None:
    store: LedgerStore[dict[str, str]] = LedgerStore(ledger, user_of=lambda context: context.get("user"))
    ada, bob = {"user": "ada"}, {"user": "bob"}
    await store.save_thread(ThreadMetadata(id="trip", created_at=THEN), ada)
    await store.add_thread_item("trip", user_item("i0", "mine"), ada)
    file = FileAttachment(id="atc_1", name="plan.pdf", mime_type="application/pdf")
    await store.save_attachment(file, ada)
    assert [one.id for one in (await store.load_threads(9, None, "desc", ada)).data] == ["trip"]
    assert (await store.load_threads(9, None, "desc", bob)).data == []
    with pytest.raises(NotFoundError):
        await store.load_attachment("atc_1", bob)
    with pytest.raises(NotFoundError):
        await store.load_thread("trip", bob)
    assert (await store.load_thread_items("trip", None, 9, "asc", bob)).data == []
    with pytest.raises(OwnerMismatchError):
        await store.add_thread_item("trip", user_item("i1", "no"), bob)
    with pytest.raises(OwnerMismatchError):
        await store.save_thread(ThreadMetadata(id="trip", created_at=THEN), bob)
    await store.delete_thread("trip", bob)
    with pytest.raises(AccessDeniedError):
        await store.load_threads(9, None, "desc", {})
    chat = ledger.get_chat("trip")
    assert chat is not None
    assert (chat.user_id, chat.message_count) == ("ada", 1)


def test_the_context_names_the_user() -> None:
    on_ledger(_users)


async def _fake_ids(ledger: Ledger, store: LedgerStore[Any]) -> None:
    await begun(store, "a")
    for text in ("b", "c"):
        await store.add_thread_item("trip", assistant_item("__fake_id__", text), None)
    await store.add_thread_item("trip", assistant_item("i0", "d"), None)
    assert await texts(store) == ["a", "b", "c", "d"]
    page = await store.load_thread_items("trip", None, 9, "asc", None)
    assert len({item.id for item in page.data}) == 4


def test_ids_that_models_repeat_lose_nothing() -> None:
    on_ledger(_fake_ids)


class Server(ChatKitServer[Any]):
    """Answers each message of the user with its number."""

    number = 0

    async def respond(
        self, thread: ThreadMetadata, input_user_message: UserMessageItem | None, context: Any
    ) -> AsyncIterator[ThreadStreamEvent]:
        self.number += 1
        item_id = self.store.generate_item_id("message", thread, context)
        yield ThreadItemDoneEvent(item=assistant_item(item_id, f"answer {self.number}", thread.id))


async def _asked(server: Server, kind: str, **params: Any) -> Any:
    """Events, or a value: the answer of the server to a request of its client."""
    result = await server.process(json.dumps({"type": kind, "params": params}), None)
    if isinstance(result, StreamingResult):
        return [json.loads(event.removeprefix(b"data: ")) async for event in result]
    return json.loads(result.json)


def _input(text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"content": content, "attachments": [], "inference_options": {}}


async def _server(ledger: Ledger, store: LedgerStore[Any]) -> None:
    server = Server(store)
    events = await _asked(server, "threads.create", input=_input("Riga?"))
    thread_id = next(event["thread"]["id"] for event in events if event["type"] == "thread.created")
    await _asked(server, "threads.add_user_message", thread_id=thread_id, input=_input("And Tartu?"))
    assert [message.text for message in ledger.get_messages(thread_id)] == [
        "Riga?",
        "answer 1",
        "And Tartu?",
        "answer 2",
    ]
    full = await _asked(server, "threads.get_by_id", thread_id=thread_id)
    asked = full["items"]["data"][0]["id"]
    await _asked(server, "threads.retry_after_item", thread_id=thread_id, item_id=asked)
    assert [message.text for message in ledger.get_messages(thread_id)] == ["Riga?", "answer 3"]
    first = ledger.get_messages(thread_id)[0].id
    assert [child.text for child in ledger.children(first)] == ["answer 1", "answer 3"], "the old answer is a version"
    await _asked(server, "threads.update", thread_id=thread_id, title="Trips")
    listed = await _asked(server, "threads.list")
    assert [one["title"] for one in listed["data"]] == ["Trips"]
    items = await _asked(server, "items.list", thread_id=thread_id, order="desc", limit=1)
    assert items["has_more"]
    await _asked(server, "threads.delete", thread_id=thread_id)
    assert ledger.get_chat(thread_id) is None


def test_its_server_at_work() -> None:
    on_ledger(_server)
