r"""
Lines of transcripts, as coding agents write them: which message keeps a line, and where that goes in the tree of a chat.

    {"type": "summary", ...}                                     what says nothing travels with
    {"type": "user", "uuid": "u1", "parentUuid": null, ...}      the next line that says something: both are one message

A line is its JSON value where encoding that again gives the same bytes, else its text: so a transcript comes back byte for byte.
What a line says follows what the line said that it names as its parent. Where that is the end of a branch, the branch goes on;
elsewhere a new one begins, which becomes the active one: that is how edits, rewinds and rollbacks look in a transcript. Calls that
ran in parallel draw forks too, which are none: their parts stand one after the other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import InvalidValueError
from ..forms.items import USER
from ..limits import MAX_JSON_DEPTH, data_copy, same_json
from ..values import Message, NewMessage
from .commit import Commit

BOOKKEEPING: Final = "bookkeeping"
"""The name of messages of lines that say nothing: those at the end of what there is of a transcript."""
UNNAMED: Final = "#"
"""The beginning of ids of lines that have none of their own."""
_MOST_STEPS: Final = 500


class TranscriptLine(NamedTuple):
    """
    A line of a transcript, and what its agent says of it.

    Args:
        value: Its JSON value, or its text.
        id: Its id in the transcript; one that begins with `UNNAMED` where the agent gave none.
        parent: The id of the line that it follows; None for a beginning; UNSET where it follows what was said last.
        name: The role of who says something in it; empty where nobody does.
        created_at: When, in ms since the epoch.
        is_aside: Whether it is of a conversation beside the main one of its transcript.
        answer: The id of the answer of a model that it is a part of.
        is_result: Whether it has results of tools.
        title: A title for the chat.
        is_titled: Whether that was meant as a title: by a user or a model. Else it is a prompt.
        steps_back: Number of prompts that are taken back before the next line.
        instead: The id of a line in the place of which this one stands, or the next one that says something.
    """

    value: Any
    id: str
    parent: str | UnsetType | None = UNSET
    name: str = ""
    created_at: int | None = None
    is_aside: bool = False
    answer: str | None = None
    is_result: bool = False
    title: str | None = None
    is_titled: bool = False
    steps_back: int = 0
    instead: str | None = None


def value_of(line: bytes) -> Any:
    """Return the value that keeps a line, which has no line break at its end: JSON, or its text where JSON would lose a byte of it."""
    try:
        value: Any = msgspec.json.decode(line)
        if type(value) is dict and msgspec.json.encode(value) == line:
            # A log knows only so many levels. Nearly all lines have fewer brackets, which are counted in a tenth of the time.
            if line.count(b"{") + line.count(b"[") >= MAX_JSON_DEPTH:
                data_copy(value, "a line", 1)
            return cast("Any", value)
    except (ValueError, RecursionError, InvalidValueError):
        pass
    return line.decode(errors="surrogateescape")


def bytes_of(value: Any) -> bytes:
    """Return the line that a value keeps, without its line break."""
    return value.encode(errors="surrogateescape") if isinstance(value, str) else msgspec.json.encode(value)


def values_in(data: Any) -> list[Any]:
    """Return the lines in the data of a message, what is said last."""
    return cast("list[Any]", data) if isinstance(data, list) else [data]


def gather(lines: Iterable[TranscriptLine]) -> list[list[TranscriptLine]]:
    """Return lines by the messages that keep them: each says something in its last line, but for what is left at the end."""
    messages: list[list[TranscriptLine]] = [[]]
    for line in lines:
        messages[-1].append(line)
        if line.name:
            messages.append([])
    return messages if messages[-1] else messages[:-1]


def title_in(lines: Iterable[TranscriptLine], *, has_title: bool) -> str | None:
    """Return the title that a chat gets: the last that was meant as one, or its first prompt."""
    titles = [(line.title, line.is_titled) for line in lines if line.title]
    meant = [title for title, is_titled in titles if is_titled]
    return meant[-1] if meant else titles[0][0] if titles and not has_title else None


Read = Callable[[Message], Sequence[TranscriptLine]]
"""The lines in a message of a chat; of one that something else wrote a line that stands for it."""


def _named_by(lines: Sequence[TranscriptLine]) -> TranscriptLine:
    """The line of a message that later lines name: the last one with an id of its own says nothing, but is looked for all the same."""
    last = lines[-1]
    return last if last.name else next((line for line in reversed(lines) if line.id[:1] != UNNAMED), last)


class Placing:
    """
    The placing of lines in a chat, within one commit.

    `commit`: the commit, of a chat that is begun. `read`: what reads the lines of messages that are there.
    """

    def __init__(self, commit: Commit, form: str, read: Read) -> None:
        self._commit, self._form, self._read = commit, form, read
        self._unsaid: dict[str, str | UnsetType | None] = {}
        self._places: dict[str, str] = {}
        """The ids of messages of this commit, by those of their lines: others where a line was written anew."""

    def append(
        self, messages: Iterable[Sequence[TranscriptLine]], *, stale: AbstractSet[str] = frozenset()
    ) -> set[str]:
        """
        Append messages, as `gather` gives them, each where it belongs in the chat as it is after those before it.

        Those that are stale, or are about to be, and have the same lines stay as they are. Returns their ids.
        """
        repeated: set[str] = set()
        chat_id = self._commit.state.chat_id
        placed = [(lines, _named_by(lines)) for lines in messages]
        self._commit.state.look_up(f"{chat_id}:{own.id}" for _, own in placed)  # one read of the index for all
        for lines, own in placed:
            last = lines[-1]
            self._unsaid |= {line.id: line.parent for line in lines if not line.name}
            values = [line.value for line in lines]
            draft = NewMessage(
                last.name or BOOKKEEPING,
                values if len(values) > 1 or isinstance(values[0], str) else values[0],
                self._form,
                id=f"{chat_id}:{own.id}",
                created_at=last.created_at,
            )
            there = self._commit.message(draft.id or "")
            annotation = None if there is None else self._commit.state.annotation(there.id)
            is_stale = there is not None and (there.id in stale or (annotation is not None and annotation.stale))
            if there is not None and is_stale and there.id not in repeated and same_json(there.data, draft.data):
                repeated.add(there.id)
                continue
            branch = self._branch_of(last, self._parent(lines)) if last.name else self._commit.active_branch
            (message,) = self._commit.append(self._commit.with_free_ids([draft]), branch=branch, is_owned=True)
            self._places[own.id] = message.id
        return repeated

    def walk(self, message_id: str | None) -> Iterator[Message]:
        """Yield a message and those above it, of the last few hundred."""
        for _ in range(_MOST_STEPS):
            message = None if message_id is None else self._commit.message(message_id)
            if message is None:
                return
            yield message
            message_id = message.parent_id

    def _turn(self, message_id: str | None) -> str | None:
        """The message in which something was said last, up to this one."""
        message = None if message_id is None else self._commit.message(message_id)
        while message is not None and message.name == BOOKKEEPING and message.form == self._form:
            above = message.reply_to or message.parent_id
            message = None if above is None else self._commit.message(above)
        return None if message is None else message.id

    def _parent(self, lines: Sequence[TranscriptLine]) -> str | None:
        """The turn that the last of some lines follows: the newest where it names none, or one that is not there."""
        steps_back = sum(line.steps_back for line in lines)
        replaced = [line.instead for line in reversed(lines) if line.instead is not None]
        for noted in self.walk(self._commit.head()):  # it may have been the last line that there was
            if noted.name != BOOKKEEPING or noted.form != self._form:
                break
            noted_lines = self._read(noted)
            steps_back += sum(line.steps_back for line in noted_lines)
            replaced += [line.instead for line in reversed(noted_lines) if line.instead is not None]
        if replaced:
            message = self._message_under(replaced[0])
            return None if message is None else self._turn(message.parent_id)
        if steps_back:
            prompts = [message for message in self.walk(self._commit.head()) if message.name == USER]
            return self._turn(prompts[min(steps_back, len(prompts)) - 1].parent_id) if prompts else None
        parent = lines[-1].parent
        passed: set[str] = set()
        while isinstance(parent, str) and parent not in passed:
            passed.add(parent)
            if parent not in self._unsaid:
                message = self._message_under(parent)
                if message is not None and message.name == BOOKKEEPING:
                    self._unsaid |= {line.id: line.parent for line in self._read(message) if not line.name}
                if parent not in self._unsaid:
                    return self._turn(self._commit.head() if message is None else message.id)
            parent = self._unsaid[parent]
        return None if parent is None else self._turn(self._commit.head())

    def _message_under(self, line_id: str) -> Message | None:
        message_id = self._places.get(line_id, f"{self._commit.state.chat_id}:{line_id}")
        return self._commit.message(message_id) or self._message_of(line_id)

    def _message_of(self, line_id: str) -> Message | None:
        """The message near the end of a branch that has a line; what says nothing in it is known from then on."""
        state, seen = self._commit.state, set[str]()
        branches = [] if state.record is None else state.branches_seen()
        # A prompt that is written anew a second time follows what travels with its first version, on another branch.
        for head in (self._commit.head(), *(branch.head_message_id for branch in branches)):
            for message in self.walk(head):
                if message.id in seen:
                    break
                seen.add(message.id)
                lines = self._read(message)
                if any(line.id == line_id for line in lines):
                    self._unsaid |= {line.id: line.parent for line in lines if not line.name}
                    return message
        return None

    def _branch_of(self, line: TranscriptLine, parent: str | None) -> str:
        """The branch that a turn goes to, which is made if there is none."""
        commit = self._commit
        active, head = commit.active_branch, self._turn(commit.head())
        if not line.is_aside and (parent == head or self._is_parallel(line, parent, head)):
            return active
        if line.is_aside and parent == head and head is None:
            return active
        name = None if parent is None else commit.branch_ending_at(parent)
        if name is None or (name == active and line.is_aside):
            return commit.create_branch(parent, activate=not line.is_aside)
        if not line.is_aside:
            commit.activate(name)
        return name

    def _is_parallel(self, line: TranscriptLine, parent: str | None, head: str | None) -> bool:
        """Whether only results of tools, and parts of the same answer, stand between the parent of a line and the head."""
        above = None if parent is None or head is None else self._commit.message(parent)
        if above is None:
            return False
        # Lines of one answer have its id, whatever parents they name while calls run side by side.
        answers = {line.answer, self._read(above)[-1].answer} - {None}
        for message in self.walk(head):
            if message.id == parent:
                return True
            earlier_line = self._read(message)[-1]
            is_part = earlier_line.is_result or earlier_line.answer in answers or not earlier_line.name
            if message.form != self._form or not is_part:
                return False
        return False
