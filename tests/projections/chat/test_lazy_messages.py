"""Messages with data that are decoded when they are asked for: like any other message, and safe to keep."""

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.json_values import ids, json_values, times
from tests.support.naive_index import indexed, opened, place_of
from tests.support.soak import examples
from tests.support.stories import CHAT, Story, user

from chatledger.domain.draw.notebook import draw_html
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.values import Annotation, Message, NewMessage
from chatledger.projections.chat.chains import Annotations
from chatledger.projections.chat.pages import LazyMessage, UndecodedMessage, decode_lazily, place_lazily
from chatledger.projections.chat.reader import IndexedChat

drafts = st.builds(
    NewMessage,
    name=ids,
    data=json_values,
    type=st.none() | ids,
    created_at=times.filter(lambda time: time >= 0),
    sender_id=st.none() | ids,
)


def lazy(*messages: Message, chat_id: str = CHAT, parent_id: str | None = None) -> list[Message]:
    """Messages as they are read with `lazy_data`."""
    bare = [msgspec.structs.replace(message, chat_id="", parent_id=None) for message in messages]
    found = decode_lazily(msgspec.msgpack.encode(bare))
    place_lazily(UndecodedMessage(chat_id), found, parent_id)
    return list[Message](found)


def stored(data: Any, *, id: str = "m1", chat_id: str = CHAT, name: str = "user") -> Message:  # noqa: A002 - the field's name
    return Message(id=id, chat_id=chat_id, name=name, data=data, created_at=1)


def is_decoded(message: Message) -> bool:
    return type(message) is Message


@given(st.lists(drafts, min_size=1, max_size=20), st.integers(0, 25), st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_a_lazy_chain_is_the_chain(messages: list[NewMessage], limit: int, chosen: Any) -> None:
    """Every attribute of every message, however many of them, and also when the index is closed."""
    story = Story()
    story.create()
    story.add(
        *(
            msgspec.structs.replace(draft, id=f"m{at}", parent_id=f"m{chosen.randrange(at)}" if at else None)
            for at, draft in enumerate(messages)
        )
    )
    with TemporaryDirectory() as folder, opened(Path(folder), story.events) as index, indexed(index, CHAT) as chat:
        head = place_of(chat, f"m{len(messages) - 1}")
        eager = chat.chains.chain(head, limit)
        found = [chat.chains.chain(head, limit, lazy_data=True) for _ in range(3)]
    asked, compared, encoded = found

    assert not any(map(is_decoded, [*asked, *compared, *encoded]))
    for message, twin in zip(eager, asked, strict=True):
        without_data = [name for name in Message.__struct_fields__ if name != "data"]
        assert [getattr(message, name) for name in without_data] == [getattr(twin, name) for name in without_data]
        assert not is_decoded(twin)
        assert message.data == twin.data
        assert is_decoded(twin)
        assert [message.text, message.is_stale, message.is_hidden] == [twin.text, twin.is_stale, twin.is_hidden]
    assert eager == compared
    assert [message.data for message in encoded] == [message.data for message in eager]
    assert msgspec.json.encode(eager) == msgspec.json.encode(encoded)
    assert msgspec.msgpack.encode(eager) == msgspec.msgpack.encode(encoded)
    assert [msgspec.structs.asdict(one) for one in eager] == [msgspec.structs.asdict(one) for one in encoded]


USES: dict[str, Callable[[Message], object]] = {
    "repr": repr,
    "equals a message": lambda message: message == stored({"n": [1]}),
    "a message equals it": lambda message: stored({"n": [1]}) == message,
    "equals another one": lambda message: message == lazy(stored({"n": [1]}))[0],
    "does not differ": lambda message: message != stored({"n": [1]}),
    "does not differ from another one": lambda message: message != lazy(stored({"n": [1]}))[0],
    "a message does not differ": lambda message: stored({"n": [1]}) != message,
    "differs": lambda message: message != stored({"n": [2]}),
    "differs in the chat": lambda message: message == stored({"n": [1]}, chat_id="other"),
    "no message": lambda message: message == cast("object", "m1"),
    "pickle": lambda message: pickle.loads(pickle.dumps(message)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "replace": lambda message: msgspec.structs.replace(message, name="assistant"),
    "replace data": lambda message: msgspec.structs.replace(message, data="x"),
    "is a message": lambda message: isinstance(message, Message),
    "in a list": lambda message: message in [stored({"n": [2]}), stored({"n": [1]})],
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_it_is_used_like_a_message(use: Callable[[Message], object]) -> None:
    """What Python and msgspec do with messages gives the same, whoever goes first."""
    assert use(lazy(stored({"n": [1]}))[0]) == use(stored({"n": [1]}))


def test_it_has_the_hash_of_a_message() -> None:
    """Data that can be hashed make a message that can; others do not."""
    assert {stored("text")} == {lazy(stored("text"))[0]}
    assert hash(lazy(stored("text"))[0]) == hash(stored("text"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(lazy(stored({}))[0])


ENCODERS: dict[str, Callable[[Any], object]] = {
    "json": msgspec.json.encode,
    "msgpack": msgspec.msgpack.encode,
    "builtins": msgspec.to_builtins,
}


@pytest.mark.parametrize("encode", ENCODERS.values(), ids=ENCODERS)
def test_undecoded_data_are_not_encoded(encode: Callable[[Any], object]) -> None:
    """They would be written as they are stored, which is no JSON. Copies with other values are refused, too."""
    for message in (lazy(stored({"n": 1}))[0], msgspec.structs.replace(lazy(stored({"n": 1}))[0], name="assistant")):
        with pytest.raises(TypeError, match="UndecodedMessage"):
            encode(message)
        assert {"n": 1} == message.data
        assert encode(message) == encode(stored({"n": 1}, name=message.name))


def test_data_belong_to_the_message() -> None:
    """They are decoded once; who changes them changes no other message of the same read."""
    first, other = lazy(stored({"n": [1]}), stored({"n": [1]}, id="m2"))
    first.data["n"].append(2)

    assert [{"n": [1, 2]}, {"n": [1]}] == [first.data, other.data]
    assert first.data is first.data
    with pytest.raises(AttributeError):
        other.data = None  # type: ignore[misc]


def test_threads_get_the_same_data() -> None:
    """Whoever asks first decodes; all that ask at the same moment get the same object."""
    with ThreadPoolExecutor(8) as pool:
        for message in lazy(*(stored({"n": [number]}, id=f"m{number}") for number in range(50))):
            gate = threading.Barrier(8)

            def ask(_: int, message: Message = message, gate: threading.Barrier = gate) -> Any:
                gate.wait()
                assert CHAT == message.chat_id
                return message.data

            found = list(pool.map(ask, range(8)))
            assert 1 == len({id(data) for data in found})


def test_a_notebook_shows_a_lazy_message() -> None:
    message: Any = lazy(stored("hi <b>"))[0]

    assert message._repr_html_() == draw_html(stored("hi <b>"))


def test_data_that_can_not_be_decoded_name_their_message() -> None:
    """A row is checked as a whole when it is read; where that did not help, the error says which message it is."""
    message = lazy(stored("x"))[0]
    vars(Message)["data"].__set__(message, msgspec.Raw(b"\xc1"))
    with pytest.raises(CorruptStateError, match=f"'m1' of chat '{CHAT}'.*rebuild"):
        _ = message.data
    assert "m1" == message.id
    with pytest.raises(CorruptStateError):  # and again
        repr(message)


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[IndexedChat]:
    story = Story().chain("m1", "m2", "m3")
    with opened(tmp_path, story.events) as index, indexed(index, CHAT) as chat:
        yield chat


def test_annotations_are_shown(chat: IndexedChat, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said of a message later is there, whether its data are decoded or not."""
    said = Annotation(stale=True)

    def between(*_: object) -> list[tuple[int, Annotation]]:
        return [(1, said)]

    monkeypatch.setattr(chat.chains.annotations, "is_empty", False)
    monkeypatch.setattr(Annotations, "between", between)
    chain = chat.chains.chain(place_of(chat, "m3"), lazy_data=True)

    assert [None, said, None] == [message.annotation for message in chain]
    assert not any(map(is_decoded, chain))
    assert chain[1].is_stale
    assert chain == chat.chains.chain(place_of(chat, "m3"))


def test_lazy_messages_need_no_more_room() -> None:
    """Decoding turns a lazy message into a message, which Python allows where both have the same layout."""
    assert LazyMessage.__basicsize__ == Message.__basicsize__
    assert user("m1").data == "hello"
