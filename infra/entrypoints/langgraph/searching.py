"""Searching the messages of threads: each in the checkpoint from which on the state has it."""

from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # its only name

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.search.query import Query, is_found
from chatledger.domain.search.tokens import terms_of
from chatledger.domain.versioned.content import DIGEST_BYTES, Compound, ListNode, split_digests
from chatledger.domain.versioned.record import VersionRecord
from chatledger.domain.wire import Value
from chatledger.projections.versioned.reader import IndexedVersioned, load_contents

from .reader import Reader
from .values import is_snapshot

MESSAGES: Final = ("messages",)
"""The channels that are searched by default."""


class ThreadHit(Value, frozen=True, kw_only=True):
    """
    A message of a thread that a search found.

    Args:
        thread_id: Its thread.
        checkpoint_ns: Its namespace, as it is stored.
        checkpoint_id: The first checkpoint whose state has the message; the one with the pending write, where none came after it.
        channel: The channel of the state that it is in.
        role: The type of a message of LangChain (`human`, `ai`, `tool` ...), or the `role` of one that is a dict.
        message_id: Its id; None where it has none.
        text: Its text.
        snippet: The best passage, as in `SearchHit`.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    channel: str
    role: str
    message_id: str | None
    text: str
    snippet: str


class FoundMessage(NamedTuple):
    """A message that matches, and where it is."""

    checkpoint_id: str
    channel: str
    role: str
    message_id: str | None
    text: str


def find_messages(
    thread: IndexedVersioned, namespace: str, query: Query, channels: Collection[str], reader: Reader, runtime: str
) -> Iterator[FoundMessage]:
    """
    The messages in some channels of a namespace that match, those of older checkpoints first; each as often as it was changed.

    Costs one look at each checkpoint and each different message of the namespace, however many checkpoints share it. What
    was pruned is not there, except where a later state is made from it: then it is in that one.
    """
    line = _Line(thread, namespace, runtime)
    visited = _Visited(thread, reader)
    for record in line.records:
        shown = line.shown(record)
        for channel in record.fields.keys() & set(channels) if shown is not None else ():
            for message in visited.new(record.fields[channel].digest):
                yield from _matching(message, query, str(shown), channel)
    for record in line.records:
        following = line.following(record)
        shown = line.shown(record if following is None else following)
        for write in thread.writes(namespace, record.id) if shown is not None else ():
            # A state that has the channel has been looked at, and may have given the message an id.
            if write.channel in channels and (following is None or write.channel not in following.fields):
                for message in visited.new(write.digest):
                    yield from _matching(message, query, str(shown), write.channel)


class _Line:
    """The checkpoints of a namespace, the oldest first, with those that follow them."""

    def __init__(self, thread: IndexedVersioned, namespace: str, runtime: str) -> None:
        newest_first = [record for record in thread.versions(namespace) if record.runtime == runtime]
        self.records = newest_first[::-1]
        self._following = {record.parent: record for record in newest_first if record.parent is not None}
        self._shown: dict[str, str | None] = {}
        """The next checkpoint below each pruned one that is not pruned: long rows of them lead to the same checkpoint, which is looked up once."""

    def following(self, record: VersionRecord) -> VersionRecord | None:
        """The oldest of the checkpoints whose parent this is."""
        return self._following.get(record.id)

    def shown(self, record: VersionRecord) -> str | None:
        """The id of a checkpoint, or of the next one below it that is not pruned; None when there is none."""
        at: VersionRecord | None = record
        pruned: list[str] = []
        while at is not None and at.skeleton is not None and at.id not in self._shown:
            self._shown[at.id] = None
            pruned.append(at.id)
            at = self.following(at)
        shown = None if at is None else self._shown.get(at.id, at.id)
        self._shown |= dict.fromkeys(pruned, shown)
        return shown


class _Visited:
    """The values of a namespace that were looked at."""

    def __init__(self, thread: IndexedVersioned, reader: Reader) -> None:
        self._thread, self._reader = thread, reader
        self._seen: set[bytes] = set()
        self._lists: set[bytes] = set()

    def new(self, digest: bytes) -> Iterator[Any]:
        """The values in a list, or the value itself, that were not looked at before."""
        pending = [digest]
        while pending:
            at = pending.pop()
            if at in self._seen:
                continue
            self._seen.add(at)
            stored = self._thread.stored_content(at)
            if stored is None:
                msg = f"a value of {self._thread.name} is missing in the index; rebuild it"
                raise CorruptStateError(msg)
            content = stored.content
            if isinstance(content, ListNode):
                # Where a list grew out of a list that a state had, only the elements that were added may be new.
                self._lists.add(at)
                is_grown = content.base in self._lists
                pending += reversed(split_digests(content.children if is_grown else self._thread.elements_of(content)))
            elif isinstance(content, Compound) and is_snapshot(content.type):
                pending += split_digests(content.children)
            else:
                # A list that was serialized as a whole is another value at each checkpoint that changed it: the messages in it are
                # told apart one by one, or each of them would be found at all of these.
                whole = self._reader.decode(at, load_contents(self._thread, [at], self._reader.is_known, {}))
                for element in _flat(whole):
                    if isinstance(element, Mapping):
                        text = repr(cast("Any", element)).encode(errors="surrogatepass")
                        element_digest = blake2b(text, digest_size=DIGEST_BYTES).digest()
                        if element_digest in self._seen:
                            continue
                        self._seen.add(element_digest)
                    yield element


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, _DeltaSnapshot):
        value = value.value
    if isinstance(value, list | tuple):
        for element in cast("list[Any]", value):
            yield from _flat(element)
    else:
        yield value


def _matching(value: Any, query: Query, checkpoint_id: str, channel: str) -> Iterator[FoundMessage]:
    role: Any
    if isinstance(value, BaseMessage):
        role, message_id, text = value.type, value.id, str(value.text)
    elif isinstance(value, Mapping):
        message = cast("Mapping[str, Any]", value)
        role, message_id, text = message.get("role"), message.get("id"), _text_of(message.get("content"))
    else:
        return
    if isinstance(role, str) and is_found(query, terms_of(text)):
        yield FoundMessage(checkpoint_id, channel, role, message_id if isinstance(message_id, str) else None, text)


def _text_of(content: Any) -> str:
    """The text of the content of a message: of a list of parts that of its text parts."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    parts = cast("list[Any]", content)
    texts = [cast("Mapping[str, Any]", part).get("text") if isinstance(part, Mapping) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))
