"""
How a thread stands: whether it waits for somebody, failed, has something left to run, or is finished.

All of it is told by what LangGraph stores: which channels the newest checkpoint of an agent has, and what the tasks of the next step wrote.
"""

import re
from ast import literal_eval
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, cast

from ..wire import Value
from .keys import ASSISTANT
from .record import AgentStanding, StatusName, StoredWrite, VersionRecord

NULL_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task of what comes from outside of the graph: a plain `Command(resume=...)` writes its answer there."""
INTERRUPT, ERROR, RESUME = "__interrupt__", "__error__", "__resume__"
START, SENDS = "__start__", "__pregel_tasks"
BRANCH, JOIN = "branch:to:", "join:"
OF_GRAPH: Final = (BRANCH, JOIN, "__")
"""How channels begin by which LangGraph chooses nodes: they are not of the state."""
_PULL, _PUSH = "~__pregel_pull", "~__pregel_push"
SPECIAL: Final = frozenset({INTERRUPT, ERROR, RESUME})
"""The channels that decide how a thread stands."""
MESSAGES: Final = "messages"
CANCELLED: Final = "CancelledError()"
"""LangGraph keeps it as an error of a node that its run was ended on demand."""
_TASK_LETTERS: Final = 6
_UUID_DIGITS, _UUID_VERSION, _UUID_EPOCH = 32, 12, 0x01B21DD213814000
"""Of a UUID: its length in hex digits, the place of its version, and the beginning of our epoch in its time, in 100 ns since 1582."""
_DAY_MS: Final = 86_400_000
_WORDS: Final = 120
_QUESTIONS: Final = ("question", "message", "description", "prompt", "text", "title", "query")
_ERROR: Final = re.compile(r"(\w+)\((.*)\)", re.DOTALL)

ReadPlain = Callable[[bytes], Any]
"""Returns the value of a digest as plain data."""


class ThreadStatus(Value, frozen=True, kw_only=True):
    """
    How a thread of agents stands.

    Args:
        status: `waits` for an answer of somebody; `running` while a run of a chat on it is open; `failed` where its last task did;
            `stopped` where nodes are left to run; else `finished`.
        node: The node that waits or failed, or the next one; "" where it is finished.
        words: What it asks, the first line of the error, or the last message: at most 120 characters.
        steps: How many checkpoints it has.
        work_ms: How long its tasks worked, in ms, one after the other and without waiting for answers.
        since: When it began to stand so, in ms since the epoch.
    """

    status: StatusName
    node: str
    words: str
    steps: int
    work_ms: int
    since: int


def is_agents(line: str) -> bool:
    """Whether a namespace is an agent's own, and not that of a subgraph, which a task of it runs."""
    return "|" not in line and (line.startswith(ASSISTANT) or ":" not in line)


def standing_of(version: VersionRecord, writes: Sequence[StoredWrite], read: ReadPlain) -> AgentStanding:
    """Return how an agent stands at its newest checkpoint, with the writes of that by task path, task and index."""

    def stands(status: StatusName, write: StoredWrite) -> AgentStanding:
        node, since = node_of(write, version, read), write.written_at or version.stored_at
        return AgentStanding(status, node, version.id, version.stored_at, since, write.digest)

    answered_at = max((write.written_at for write in writes if _is_answer(write)), default=None)
    failure: AgentStanding | None = None
    for _, listed in groupby(writes, key=attrgetter("task_path", "task_id")):
        own = list(listed)
        if any(write.index >= 0 for write in own):
            continue
        question = next((write for write in own if write.channel == INTERRUPT), None)
        if question is not None and is_waiting(question, own, answered_at):
            return stands("waits", question)
        error = next((write for write in own if write.channel == ERROR), None)
        if failure is None and error is not None and read(error.digest) != CANCELLED:
            failure = stands("failed", error)
    if failure is not None:
        return failure
    following, messages = next_nodes(version, read), version.fields.get(MESSAGES)
    return AgentStanding(
        "stopped" if following else "finished",
        ", ".join(following[:3]),
        version.id,
        version.stored_at,
        version.stored_at,
        b"" if messages is None else messages.digest,
    )


def _is_answer(write: StoredWrite) -> bool:
    return write.channel == RESUME and write.task_id == NULL_TASK


def is_waiting(question: StoredWrite, own: Iterable[StoredWrite], answered_at: int | None) -> bool:
    """
    Whether a question is not answered yet, neither by its task's own writes nor from outside, at `answered_at`.

    A node that asks again replaces its question, and the answer to the one before stays: so the later one of both decides. Where
    nobody knows their times, as in some imports, an answer counts.
    """
    times = [write.written_at for write in own if write.channel == RESUME]
    times += [] if answered_at is None else [answered_at]
    return not times or 0 < max(times) <= question.written_at


def next_nodes(version: VersionRecord, read: ReadPlain) -> list[str]:
    """Return the nodes that are to run after a checkpoint: packets to nodes first, then by name."""
    packets = read(version.fields[SENDS].digest) if SENDS in version.fields else None
    sent = [_packet_node(packet) for packet in cast("list[Any]", packets)] if isinstance(packets, list) else []
    nodes: set[str] = set()
    for channel, field in version.fields.items():
        if channel == START:
            nodes.add(START)
        elif channel.startswith(BRANCH):
            nodes.add(channel.removeprefix(BRANCH))
        elif channel.startswith(JOIN):
            # It stays in the state after its use, and is empty then.
            awaited, _, node = channel.removeprefix(JOIN).rpartition(":")
            arrived = read(field.digest)
            if isinstance(arrived, list) and {*awaited.split("+")} <= {*map(str, cast("list[Any]", arrived))}:
                nodes.add(node)
    return [*sent, *sorted(nodes)]


def _packet_node(packet: Any) -> str:
    return str(cast("dict[str, Any]", packet).get("node", "")) if isinstance(packet, dict) else ""


def node_of(write: StoredWrite, version: VersionRecord, read: ReadPlain) -> str:
    """Return the node of the task that wrote something after a checkpoint; the beginning of its id where old writes do not tell it."""
    kind, _, rest = write.task_path.partition(", ")
    if kind == _PULL and rest:
        return rest
    number = rest.partition(",")[0]
    if kind == _PUSH and number.isdecimal() and SENDS in version.fields:
        packets = read(version.fields[SENDS].digest)
        if isinstance(packets, list) and int(number) < len(cast("list[Any]", packets)):
            return _packet_node(packets[int(number)]) or write.task_id[:_TASK_LETTERS]
    return write.task_id[:_TASK_LETTERS]


def shown_node(node: str) -> str:
    """Return a node as people read it: LangGraph's own first one is `start`."""
    return "start" if node == START else node


def is_of_task(task_id: str, task_path: str) -> bool:
    """Whether a task of the graph wrote something, and not somebody from outside: by an answer, or an update of the state."""
    return task_id != NULL_TASK and (not task_path or task_path.startswith((_PULL, _PUSH)))


def made_at(version: VersionRecord) -> int:
    """
    Return when a checkpoint was made, in ms since the epoch, which is when the tasks after it began.

    LangGraph stores checkpoints in the background: under load their events come after the writes of tasks that began later. The ids that
    it makes (UUIDs of version 6) have the time.
    """
    digits = version.id.replace("-", "")
    if len(digits) == _UUID_DIGITS and digits[_UUID_VERSION] == "6":
        with suppress(ValueError):
            ticks = int(digits[:_UUID_VERSION], 16) << 12 | int(digits[_UUID_VERSION + 1 : _UUID_VERSION + 4], 16)
            made_at_ms = (ticks - _UUID_EPOCH) // 10_000
            # An id may be made up; and one that lies ahead was made by another clock.
            if abs(version.stored_at - made_at_ms) < _DAY_MS:
                return min(made_at_ms, version.stored_at)
    return version.stored_at


def work_ms(began_at: int, writes: Sequence[StoredWrite]) -> int:
    """
    Return how long a task worked, in ms, from the checkpoint before it to its last write, without the time in which its question waited.

    Of several questions of one task only the last is stored: the wait for the others counts as work.
    """
    times = [write.written_at for write in writes if write.written_at]
    if not times or not is_of_task(writes[0].task_id, writes[0].task_path):
        return 0
    last_asked_at = max((write.written_at for write in writes if write.channel == INTERRUPT), default=0)
    answered = max((write.written_at for write in writes if write.channel == RESUME), default=0)
    waited = max(answered - last_asked_at, 0) if last_asked_at else 0
    return max(max(times) - began_at - waited, 0)


def words_of(status: StatusName, value: Any) -> str:
    """Return what a thread asks, failed with or said last, in one line of at most 120 characters, of the value or the message that tells it."""
    if status == "waits":
        return shortened(question_words(value))
    if status == "failed":
        return shortened(error_words(value))
    return shortened(text_of_message(value))


def words_of_input(value: Any) -> str:
    """Return the last message of an input in a line; a message may be a pair of a role and a text there."""
    messages: Any = cast("dict[str, Any]", value).get(MESSAGES) if isinstance(value, dict) else value
    entries = cast("list[Any]", messages) if isinstance(messages, list) else [messages]
    last: Any = entries[-1] if entries else None
    return shortened(str(cast("list[Any]", last)[-1]) if isinstance(last, list) and last else text_of_message(last))


def question_words(value: Any) -> str:
    """Return what an interrupt asks: of a dict the text that is named as a question, or else the first text."""
    if isinstance(value, list):
        return question_words(cast("list[Any]", value)[0]) if value else ""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if fields.keys() >= {"value", "id"}:
            return question_words(fields["value"])
        named = [fields[name] for name in _QUESTIONS if isinstance(fields.get(name), str)]
        texts = named or [text for text in fields.values() if isinstance(text, str)]
        inner = (question_words(entry) for entry in fields.values() if isinstance(entry, dict | list))
        return texts[0] if texts else next(filter(None, inner), "")
    return "" if value is None else str(value)


def error_words(value: Any) -> str:
    """Return the first line of an error as `Name: what it says`; LangGraph keeps its `repr`."""
    text = value if isinstance(value, str) else question_words(value)
    return ": ".join(filter(None, error_parts(text) or (text,))).strip().partition("\n")[0]


def error_parts(text: str) -> tuple[str, str] | None:
    """Return the class of an error and what it says, of its `repr`; None of another text."""
    parts = _ERROR.fullmatch(text)
    if parts is None:
        return None
    with suppress(ValueError, SyntaxError):
        return parts[1], str(literal_eval(parts[2]))
    return parts[1], parts[2]


def text_of_message(message: Any) -> str:
    """Return the text of a message as plain data, of all its blocks; that of a tool's call is its name."""
    if not isinstance(message, dict):
        return message if isinstance(message, str) else ""
    fields = cast("dict[str, Any]", message)
    content = fields.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
    texts = [block if isinstance(block, str) else text_in(block) for block in blocks]
    calls = fields.get("tool_calls")
    names = [
        str(cast("dict[str, Any]", call).get("name"))
        for call in cast("list[Any]", calls or [])
        if isinstance(call, dict)
    ]
    return " ".join(filter(None, texts)) or ", ".join(names)


def text_in(block: Any) -> str:
    """Return the text of a block of a message's content; "" where it has none."""
    text = cast("dict[str, Any]", block).get("text") if isinstance(block, dict) else None
    return text if isinstance(text, str) else ""


def shortened(text: str) -> str:
    """Return a text as one line of at most 120 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _WORDS else line[: _WORDS - 1] + "…"
