"""
Stories of conversations, and how OpenAI, Responses, Anthropic, Gemini and the AI SDK tell them, well and badly.

Written from the vendors' documents, without any reader or writer of chatledger. Whatever is said, called or answered has a mark such
as `~w3~`, which is in no other place: so a test finds it again in any form, and knows what is missing. A strategy draws bytes, which
a story is told from: that costs a tenth of drawing each choice, and zeros are the simplest story, so a failure still shrinks.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar, cast

from hypothesis import strategies as st

from chatledger.domain.values import Message

T = TypeVar("T")
Json = dict[str, Any]
Place = Literal["bytes", "url", "provider"]
Kind = Literal["text", "file", "thought", "own", "call", "result"]

FORMS: Final = ("openai", "responses", "anthropic", "google", "ui")
MARK: Final = re.compile(r"~([a-z]\d+)~")
_FILE: Final = re.compile(r"YSBmaWxl[\w+/=-]+")  # `a file …`; Google's client writes the Base64 of URLs
_BYTES: Final = 160
_NAMES: Final = ("weather", "read_file", "Bash", "mcp__web-search")


@dataclass(frozen=True, slots=True)
class File:
    """A file: an image or a PDF, with its bytes or by its address, or uploaded to a provider (`file_id`)."""

    mark: str
    is_image: bool = True
    place: Place = "bytes"

    @property
    def media_type(self) -> str:
        return "image/png" if self.is_image else "application/pdf"

    @property
    def data(self) -> str:
        return base64.b64encode(f"a file ~{self.mark}~".encode()).decode()

    @property
    def url(self) -> str:
        """Where it is: an address, or a `data:` URL."""
        suffix = "png" if self.is_image else "pdf"
        by_bytes = f"data:{self.media_type};base64,{self.data}"
        return by_bytes if self.place == "bytes" else f"https://files.example/~{self.mark}~.{suffix}"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool. `id` is what its form says; None where it says none."""

    mark: str
    name: str
    id: str | None

    @property
    def input(self) -> Json:
        return {"city": f"~{self.mark}~"}

    @property
    def told_id(self) -> str:
        """The id that it has where each call has one."""
        return self.id if self.id is not None else self.name


@dataclass(frozen=True, slots=True)
class Result:
    """An answer of a tool. `call` is the mark of its call; of a stray result, there is none."""

    mark: str
    id: str | None
    name: str
    call: str | None
    file: File | None = None
    is_error: bool = False
    is_repeat: bool = False

    @property
    def words(self) -> str:
        return f"rain ~{self.mark}~"

    @property
    def told_id(self) -> str:
        """The id that it names; where its call has none, the name of its function is one."""
        return self.id if self.id is not None else self.name


@dataclass(frozen=True, slots=True)
class Words:
    """Words and files of a user, or of who instructs."""

    role: str
    words: tuple[str, ...]
    files: tuple[File, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A message of the assistant: thoughts, words, calls, and words behind the calls, in the order in which they came."""

    thought: str | None = None
    is_signed: bool = True
    words: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    words_behind: tuple[str, ...] = ()
    own: str | None = None
    is_refusal: bool = False
    has_blank: bool = False


@dataclass(frozen=True, slots=True)
class Results:
    """Results of tools, as they come together."""

    results: tuple[Result, ...]
    is_late: bool = False


Act = Words | Answer | Results


@dataclass(frozen=True, slots=True)
class Saying:
    """Something said: in which message, what, by whom, and its mark; of a result, the mark of the call that it answers."""

    message_id: str
    kind: Kind
    role: str
    mark: str
    answers: str | None = None
    may_be_dropped: bool = False


@dataclass(frozen=True, slots=True)
class ToldMessage:
    """A message as it came: `name` is the name under which a chat stores it."""

    id: str
    form: str
    name: str
    data: Json


def stored(message_id: str, form: str, name: str, data: Any) -> Message:
    """A message as a chat has stored it."""
    return Message(id=message_id, chat_id="c", parent_id=None, name=name, data=data, form=form, created_at=0)


@dataclass(slots=True)
class Told:
    """
    A story as it was told.

    Args:
        messages: The messages.
        sayings: What was said in them, in order.
        secrets: What only the API of that form may get back: signatures and encrypted thoughts.
        pairs: The ids of thoughts of the Responses API, each with the id of the item that follows it.
        has_clear_pairs: Whether it can be known which call a result answers; if not, some may find none.
        late: The ids of messages with results that came after somebody else spoke.
    """

    messages: list[ToldMessage] = field(default_factory=list[ToldMessage])
    sayings: list[Saying] = field(default_factory=list[Saying])
    secrets: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    pairs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    has_clear_pairs: bool = True
    late: list[str] = field(default_factory=list[str])

    def chain(self) -> list[Message]:
        """The messages as a chat has stored them."""
        return [stored(message.id, message.form, message.name, message.data) for message in self.messages]

    def add(self, form: str, name: str, data: Json, sayings: Iterable[Saying]) -> None:
        message_id = f"m{len(self.messages)}"
        if form == "ui":
            data = {"id": message_id} | data
        self.messages.append(ToldMessage(message_id, form, name, data))
        self.sayings += [replace(saying, message_id=message_id) for saying in sayings]

    def secret(self, form: str, mark: str) -> str:
        """A signature of what has this mark, that its API alone can read."""
        signature = base64.b64encode(f"signed by {form}, {mark}".encode()).decode()
        self.secrets.append((form, signature))
        return signature


class _Dice:
    """Choices from bytes; behind the last byte, and for a zero, the first choice."""

    def __init__(self, drawn: bytes) -> None:
        self._bytes = iter(drawn)
        self._marks = 0

    def below(self, count: int) -> int:
        return next(self._bytes, 0) % count

    def one_in(self, count: int) -> bool:
        return next(self._bytes, 0) % count == count - 1

    def of(self, *choices: T) -> T:
        return choices[self.below(len(choices))]

    def mark(self, letter: str) -> str:
        self._marks += 1
        return f"{letter}{self._marks}"


def stories(forms: Sequence[str], *, faults: Sequence[str] | None = None) -> st.SearchStrategy[Told]:
    """
    Stories told in `forms`: in one of them, or in several, one after the other.

    `faults`: those that a story has; none for what an API tells itself; absent, any, and ids of all kinds.
    """
    return st.binary(min_size=_BYTES, max_size=_BYTES).map(lambda drawn: tell(drawn, forms, faults=faults))


def tell(drawn: bytes, forms: Sequence[str], *, faults: Sequence[str] | None = None) -> Told:
    """The story that these bytes are."""
    dice = _Dice(drawn)
    schemes = ("own", "none") if tuple(forms) == ("google",) else ("own",)
    if faults is None:
        schemes = (*schemes, *_SCHEMES)
        faults = [fault for fault in FAULTS if dice.one_in(4)]
    scheme, has = dice.of(*schemes), frozenset(faults)
    acts, told = _acts(dice, has, scheme, forms), Told()
    unclear = {"shuffled", "double", "stray", "missing", "late", "between"}
    told.has_clear_pairs = scheme in {"own", "foreign", "long"} or not has & unclear
    form, segment = dice.of(*forms), list[Act]()
    for act in acts:
        may_switch = isinstance(act, Words) or (isinstance(act, Results) and "between" in has)
        if len(forms) > 1 and may_switch and segment and dice.one_in(2):
            _TELLERS[form](told, segment, dice, has)
            form, segment = dice.of(*forms), []
        segment.append(act)
    _TELLERS[form](told, segment, dice, has)
    if not told.has_clear_pairs:  # a second result may take the place of another's
        told.sayings = [
            replace(saying, may_be_dropped=saying.may_be_dropped or saying.role == "tool") for saying in told.sayings
        ]
    return told


FAULTS: Final = (
    "shuffled",  # results in another order than calls
    "missing",  # a call without result
    "double",  # a second result of one call
    "stray",  # a result of no call
    "late",  # results after somebody else spoke
    "between",  # forms change between call and result
    "blank",  # empty texts
    "unsigned",  # thoughts without signature
    "behind",  # words behind calls
    "apart",  # what belongs to one message comes in several
)
_SCHEMES: Final = ("own", "counting", "foreign", "long", "same", "none", "empty")


def _acts(dice: _Dice, faults: frozenset[str], scheme: str, forms: Sequence[str]) -> list[Act]:
    """Turns: words of users, answers, steps with calls and results."""
    acts: list[Act] = []
    if dice.one_in(3):
        acts.append(Words("system", (dice.mark("w"),)))
    if "apart" in faults and dice.one_in(4):
        acts.append(Answer(words=(dice.mark("w"),)))  # a greeting
    if "apart" in faults and dice.one_in(4):  # what is left of a longer chat
        step = _answer(dice, faults, _calls(dice, scheme, forms))
        acts += [step, *_results(dice, faults, step.calls)]
    delayed: list[Results] = []
    for _ in range(1 + dice.below(4)):
        acts.append(_words(dice, faults))
        acts += delayed
        delayed = []
        if "apart" in faults and dice.one_in(3):
            acts.append(_words(dice, faults))
        for _ in range(dice.below(3)):
            step = _answer(dice, faults, _calls(dice, scheme, forms))
            if "apart" in faults and dice.one_in(3):
                acts += [replace(step, calls=step.calls[:1], words_behind=())]
                acts += [Answer(calls=(call,)) for call in step.calls[1:]]
            else:
                acts.append(step)
            if "apart" in faults and "behind" in faults and dice.one_in(3):
                acts.append(_answer(dice, faults, ()))
            returned = _results(dice, faults, step.calls)
            if "late" in faults and returned and dice.one_in(2):
                delayed += [replace(back, is_late=True) for back in returned]
            else:
                acts += returned
        if dice.below(4):
            acts.append(_answer(dice, faults, ()))
        if "apart" in faults and dice.one_in(3):
            acts.append(_answer(dice, faults, ()))
    return acts + delayed


def _words(dice: _Dice, faults: frozenset[str]) -> Words:
    words = tuple(dice.mark("w") for _ in range(1 + dice.one_in(4)))
    files = tuple(_file(dice, may_be_elsewhere=True) for _ in range(dice.one_in(4) + dice.one_in(8)))
    return Words("user", words if not ("blank" in faults and dice.one_in(4)) else ("", *words), files)


def _file(dice: _Dice, *, may_be_elsewhere: bool) -> File:
    places: tuple[Place, ...] = ("bytes", "url", "bytes", "provider") if may_be_elsewhere else ("bytes",)
    place = dice.of(*places)
    return File(dice.mark("f"), is_image=not dice.one_in(3), place=place)


def _answer(dice: _Dice, faults: frozenset[str], calls: tuple[Call, ...]) -> Answer:
    has_blank = "blank" in faults and dice.one_in(2)
    has_words = dice.one_in(2) if calls or has_blank else True
    return Answer(
        thought=dice.mark("t") if dice.one_in(3) else None,
        is_signed=not ("unsigned" in faults and dice.one_in(2)),
        words=tuple(dice.mark("w") for _ in range(has_words + (has_words and dice.one_in(4)))),
        calls=calls,
        words_behind=(dice.mark("w"),) if calls and "behind" in faults and dice.one_in(2) else (),
        own=dice.mark("o") if dice.one_in(4) else None,
        is_refusal=not calls and dice.one_in(8),
        has_blank=has_blank,
    )


def _calls(dice: _Dice, scheme: str, forms: Sequence[str]) -> tuple[Call, ...]:
    calls = list[Call]()
    names = (*_NAMES, "default_api.read") if tuple(forms) == ("google",) else _NAMES
    name = dice.of(*names)
    for place in range(1 + dice.of(0, 1, 0, 2, 3)):
        mark = dice.mark("c")
        name = dice.of(name, *names)
        by_scheme: dict[str, str | None] = {
            "own": f"call_{mark}AbCd",
            "counting": f"call_{place}",
            "foreign": f"functions.{name}:{mark[1:]}",
            "long": "call_" + "x" * dice.of(40, 70) + mark,
            "same": name,
            "none": None,
            "empty": "",
        }
        calls.append(Call(mark, name, by_scheme[scheme]))
    return tuple(calls)


def _results(dice: _Dice, faults: frozenset[str], calls: tuple[Call, ...]) -> list[Results]:
    results = [
        Result(
            dice.mark("r"),
            call.id,
            call.name,
            call.mark,
            file=_file(dice, may_be_elsewhere=False) if dice.one_in(5) else None,
            is_error=dice.one_in(6),
        )
        for call in calls
        if not ("missing" in faults and dice.one_in(3))
    ]
    if "shuffled" in faults:
        results = results[::-1] if dice.one_in(2) else results[1:] + results[:1]
    if results and "double" in faults and dice.one_in(2):
        results.append(replace(results[0], mark=dice.mark("r"), is_repeat=True, file=None))
    if "stray" in faults and dice.one_in(2):
        results.insert(dice.below(len(results) + 1), Result(dice.mark("r"), "call_nowhere", "nothing", None))
    if "apart" in faults and len(results) > 1 and dice.one_in(2):
        return [Results((result,)) for result in results]
    return [Results(tuple(results))] if results else []


def marks_in(value: Any) -> list[str]:
    """The marks in a value of JSON, those in files included."""
    if isinstance(value, str):
        encoded = value.partition(";base64,")[2] or value
        is_file = len(encoded) % 4 == 0 and _FILE.fullmatch(encoded)
        return MARK.findall(
            base64.b64decode(encoded, b"-_" if {"-", "_"} & set(encoded) else None).decode("latin-1")
            if is_file
            else value
        )
    if isinstance(value, dict):
        return [mark for member in cast("Json", value).values() for mark in marks_in(member)]
    if isinstance(value, list):
        return [mark for member in cast("list[Any]", value) for mark in marks_in(member)]
    return []


def _text(mark: str) -> str:
    return f"words ~{mark}~" if mark else mark


def _sayings(act: Act) -> Iterator[Saying]:
    """The sayings of an act, in order."""
    if isinstance(act, Words):
        yield from (Saying("", "text", act.role, mark) for mark in act.words if mark)
        yield from (Saying("", "file", act.role, file.mark, may_be_dropped=file.place != "bytes") for file in act.files)
    elif isinstance(act, Answer):
        if act.thought:
            yield Saying("", "thought", "assistant", act.thought, may_be_dropped=True)
        if act.own:
            yield Saying("", "own", "assistant", act.own, may_be_dropped=True)
        yield from (Saying("", "text", "assistant", mark) for mark in act.words)
        yield from (Saying("", "call", "assistant", call.mark) for call in act.calls)
        yield from (Saying("", "text", "assistant", mark) for mark in act.words_behind)
    else:
        for result in act.results:
            yield from _result_sayings(result)


def _result_sayings(result: Result) -> Iterator[Saying]:
    is_extra = result.call is None or result.is_repeat
    yield Saying("", "result", "tool", result.mark, answers=result.call, may_be_dropped=is_extra)
    if result.file:
        yield Saying("", "file", "tool", result.file.mark, may_be_dropped=is_extra)


def _tell_openai(told: Told, acts: list[Act], dice: _Dice, faults: frozenset[str]) -> None:
    for act in acts:
        if isinstance(act, Words):
            parts = [{"type": "text", "text": _text(mark)} for mark in act.words]
            parts += [_openai_file(file) for file in act.files]
            is_plain = len(parts) == 1 and dice.one_in(2)
            role = "developer" if act.role == "system" and dice.one_in(2) else act.role
            content = parts[0]["text"] if is_plain else parts
            told.add("openai", act.role, {"role": role, "content": content}, _sayings(act))
        elif isinstance(act, Answer):
            told.add("openai", "assistant", _openai_answer(act, dice), _sayings(replace(act, own=None)))
        else:
            for result in act.results:
                bare = replace(result, file=None)  # which no tool can give there
                output: Any = result.words if dice.one_in(2) else [{"type": "text", "text": result.words}]
                data = {"role": "tool", "tool_call_id": result.told_id, "content": output}
                _add_result(told, "openai", data, [bare], is_late=act.is_late)


def _openai_file(file: File) -> Json:
    if file.place == "provider":
        return {"type": "file", "file": {"file_id": f"file-~{file.mark}~"}}
    if file.is_image:
        return {"type": "image_url", "image_url": {"url": file.url}}
    return {"type": "file", "file": {"filename": f"{file.mark}.pdf", "file_data": replace(file, place="bytes").url}}


def _openai_answer(act: Answer, dice: _Dice) -> Json:
    words = [*act.words, *act.words_behind]
    parts = [{"type": "text", "text": _text(mark)} for mark in words]
    content: Any = parts if len(parts) > 1 or (parts and dice.one_in(2)) else "".join(map(_text, words)) or None
    answer: Json = {"role": "assistant", "content": content}
    if act.is_refusal and len(words) == 1:
        answer |= {"content": None, "refusal": _text(words[0])}
    if act.has_blank and not words:
        answer["content"] = ""
    if act.calls:
        answer["tool_calls"] = [
            {
                "id": call.told_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.input)},
            }
            for call in act.calls
        ]
    if act.thought:
        answer["reasoning_content"] = f"thinking ~{act.thought}~"  # as DeepSeek and others say it
    return answer


def _tell_responses(told: Told, acts: list[Act], dice: _Dice, faults: frozenset[str]) -> None:
    for act in acts:
        if isinstance(act, Words):
            parts = [{"type": "input_text", "text": _text(mark)} for mark in act.words]
            parts += [_responses_file(file) for file in act.files]
            content: Any = parts[0]["text"] if len(parts) == 1 and dice.one_in(2) else parts
            typed = {"type": "message"} if dice.one_in(2) else {}
            told.add("responses", act.role, {**typed, "role": act.role, "content": content}, _sayings(act))
        elif isinstance(act, Answer):
            _tell_responses_answer(told, act, dice)
        else:
            for result in act.results:
                parts = [{"type": "input_text", "text": result.words}]
                parts += [_responses_file(result.file)] if result.file else []
                output: Any = parts if result.file or dice.one_in(3) else result.words
                data = {"type": "function_call_output", "call_id": result.told_id, "output": output}
                _add_result(told, "responses", data, [result], is_late=act.is_late)


def _responses_file(file: File) -> Json:
    kind = "input_image" if file.is_image else "input_file"
    more = {"detail": "auto"} if file.is_image else {}
    if file.place == "provider":
        return {"type": kind, "file_id": f"file-~{file.mark}~"} | more
    if file.is_image:
        return {"type": kind, "image_url": file.url} | more
    if file.place == "url":
        return {"type": kind, "file_url": file.url}
    return {"type": kind, "filename": f"{file.mark}.pdf", "file_data": file.url}


def _tell_responses_answer(told: Told, act: Answer, dice: _Dice) -> None:
    def add(name: str, data: Json, kind: Kind, mark: str, *, may_be_dropped: bool = False) -> None:
        has_id = act.thought is not None or dice.one_in(2)
        identified = {"id": f"{name}_{mark}"} if has_id or data["type"] != "function_call" else {}
        saying = Saying("", kind, "assistant", mark, may_be_dropped=may_be_dropped)
        told.add("responses", "assistant", data | identified, [saying])

    def words(marks: tuple[str, ...]) -> None:
        for mark in marks:
            part: Json = {"type": "output_text", "text": _text(mark), "annotations": []}
            if act.is_refusal:
                part = {"type": "refusal", "refusal": _text(mark)}
            data = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
            add("msg", data, "text", mark)

    if act.own:
        action = {"type": "search", "query": f"~{act.own}~"}
        data: Json = {"type": "web_search_call", "status": "completed", "action": action}
        add("ws", data, "own", act.own, may_be_dropped=True)
    if act.thought:
        summary = [{"type": "summary_text", "text": f"thinking ~{act.thought}~"}]
        data = {"type": "reasoning", "summary": summary}
        if act.is_signed:
            data["encrypted_content"] = told.secret("responses", act.thought)
        add("rs", data, "thought", act.thought, may_be_dropped=True)
        following = [f"msg_{mark}" for mark in act.words] + [f"fc_{call.mark}" for call in act.calls]
        told.pairs += [(f"rs_{act.thought}", item_id) for item_id in following[:1]]
    if not act.words and not act.calls:
        told.add("responses", "assistant", {"role": "assistant", "content": ""}, ())
    elif act.words and not act.is_refusal and not act.thought and dice.one_in(3):
        easy = {"role": "assistant", "content": "\n".join(map(_text, act.words))}
        told.add("responses", "assistant", easy, (Saying("", "text", "assistant", mark) for mark in act.words))
    else:
        words(act.words)
    for call in act.calls:
        arguments = json.dumps(call.input)
        data = {"type": "function_call", "call_id": call.told_id, "name": call.name, "arguments": arguments}
        add("fc", data, "call", call.mark)
    words(act.words_behind)


def _tell_anthropic(told: Told, acts: list[Act], dice: _Dice, faults: frozenset[str]) -> None:
    cached = 0  # "A maximum of 4 blocks with cache_control may be provided"
    returned = list[Json](), list[Saying]()
    for act, following in zip(acts, [*acts[1:], None], strict=True):
        if isinstance(act, Words):
            if act.role == "system":
                continue  # is no message of theirs
            blocks: list[Json] = [{"type": "text", "text": _text(mark)} for mark in act.words]
            blocks += [_anthropic_file(file) for file in act.files]
            if cached < 4 and dice.one_in(4):
                cached += 1
                blocks[-1]["cache_control"] = {"type": "ephemeral"}
            is_plain = len(blocks) == 1 and "cache_control" not in blocks[0] and not returned[0] and dice.one_in(2)
            content: Any = blocks[0]["text"] if is_plain else returned[0] + blocks
            told.add("anthropic", "user", {"role": "user", "content": content}, [*returned[1], *_sayings(act)])
            returned = [], []
        elif isinstance(act, Answer):
            told.add(
                "anthropic", "assistant", {"role": "assistant", "content": _anthropic_answer(told, act)}, _sayings(act)
            )
        else:
            results = [replace(result, file=None) if result.is_error else result for result in act.results]
            blocks = [_anthropic_result(result, dice) for result in results]
            sayings = [saying for result in results for saying in _result_sayings(result)]
            if isinstance(following, Words) and following.role == "user" and not act.is_late and dice.one_in(2):
                returned = blocks, sayings  # in one message with what the user says next
            else:
                told.add("anthropic", "tool", {"role": "user", "content": blocks}, sayings)
                _note_late(told, is_late=act.is_late)


def _anthropic_file(file: File) -> Json:
    source: Json = {"type": "base64", "media_type": file.media_type, "data": file.data}
    if file.place == "url":
        source = {"type": "url", "url": file.url}
    if file.place == "provider":
        source = {"type": "file", "file_id": f"file_~{file.mark}~"}
    return {"type": "image" if file.is_image else "document", "source": source}


def _anthropic_answer(told: Told, act: Answer) -> list[Json]:
    blocks: list[Json] = []
    if act.thought:
        signature = told.secret("anthropic", act.thought) if act.is_signed else ""
        blocks.append({"type": "thinking", "thinking": f"thinking ~{act.thought}~", "signature": signature})
    if act.own:
        name = f"srvtoolu_{act.own}"
        query = {"query": f"~{act.own}~"}
        blocks.append({"type": "server_tool_use", "id": name, "name": "web_search", "input": query})
        blocks.append({"type": "web_search_tool_result", "tool_use_id": name, "content": []})
    if act.has_blank:
        blocks.append({"type": "text", "text": ""})
    blocks += [{"type": "text", "text": _text(mark)} for mark in act.words]
    blocks += [
        {
            "type": "tool_use",
            "id": call.told_id,
            "name": call.name,
            "input": call.input,
        }
        for call in act.calls
    ]
    return blocks + [{"type": "text", "text": _text(mark)} for mark in act.words_behind]


def _anthropic_result(result: Result, dice: _Dice) -> Json:
    parts: list[Json] = [{"type": "text", "text": result.words}]
    if result.file:
        parts.append(_anthropic_file(result.file))
    content: Any = parts if len(parts) > 1 or dice.one_in(2) else result.words
    more = {"is_error": True} if result.is_error else {}
    return {"type": "tool_result", "tool_use_id": result.told_id, "content": content} | more


def _tell_google(told: Told, acts: list[Act], dice: _Dice, faults: frozenset[str]) -> None:
    for act in acts:
        if isinstance(act, Words):
            if act.role == "system":
                continue  # is no content of theirs
            parts = [{"text": _text(mark)} for mark in act.words]
            parts += [_google_file(file) for file in act.files]
            told.add("google", "user", {"role": "user", "parts": parts}, _sayings(act))
        elif isinstance(act, Answer):
            data = {"role": "model", "parts": _google_answer(told, act)}
            told.add("google", "assistant", data, _sayings(act))
        else:
            parts = [_google_result(result) for result in act.results]
            sayings = [saying for result in act.results for saying in _result_sayings(result)]
            told.add("google", "tool", {"role": "user", "parts": parts}, sayings)
            _note_late(told, is_late=act.is_late)


def _google_file(file: File) -> Json:
    if file.place == "bytes":
        return {"inlineData": {"mimeType": file.media_type, "data": file.data}}
    scheme = "https://generativelanguage.googleapis.com/v1beta/files" if file.place == "provider" else "gs://bucket"
    return {"fileData": {"mimeType": file.media_type, "fileUri": f"{scheme}/~{file.mark}~"}}


def _google_answer(told: Told, act: Answer) -> list[Json]:
    parts: list[Json] = []
    if act.thought:
        parts.append({"text": f"thinking ~{act.thought}~", "thought": True})
    if act.own:
        parts.append({"executableCode": {"language": "PYTHON", "code": f"print('~{act.own}~')"}})
        parts.append({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}})
    if act.has_blank:
        parts.append({"text": ""})
    parts += [{"text": _text(mark)} for mark in act.words]
    for place, call in enumerate(act.calls):
        part: Json = {"functionCall": {"name": call.name, "args": call.input}}
        if call.id:
            part["functionCall"]["id"] = call.id
        if place == 0:  # as Gemini 3 signs: the first call of each step
            part["thoughtSignature"] = told.secret("google", call.mark)
        parts.append(part)
    parts += [{"text": _text(mark)} for mark in act.words_behind]
    if act.thought and act.is_signed and not act.calls:
        parts[-1]["thoughtSignature"] = told.secret("google", act.thought)
    return parts


def _google_result(result: Result) -> Json:
    response: Json = {"name": result.name, "response": {"error" if result.is_error else "output": result.words}}
    if result.id:
        response["id"] = result.id
    if result.file:
        media = {"mimeType": result.file.media_type, "data": result.file.data}
        response["parts"] = [{"inlineData": media}]
    return {"functionResponse": response}


def _tell_ui(told: Told, acts: list[Act], dice: _Dice, faults: frozenset[str]) -> None:
    results: dict[str | None, Result] = {}
    for act in acts:
        for result in act.results if isinstance(act, Results) else ():
            results.setdefault(result.call, replace(result, file=None) if result.is_error else result)
    parts, sayings = list[Json](), list[Saying]()

    def end_of_answer() -> None:
        if parts:
            told.add("ui", "assistant", {"role": "assistant", "parts": list(parts)}, sayings)
        parts.clear()
        sayings.clear()

    for act in acts:
        if isinstance(act, Words):
            end_of_answer()
            content = [{"type": "text", "text": _text(mark)} for mark in act.words]
            content += [{"type": "file", "mediaType": file.media_type, "url": file.url} for file in act.files]
            told.add("ui", act.role, {"role": act.role, "parts": content}, _sayings(act))
        elif isinstance(act, Answer):
            if "apart" in faults and dice.one_in(2):
                end_of_answer()
            parts.extend(_ui_step(act, results))
            sayings.extend(_sayings(act))
            for call in act.calls:
                sayings.extend(_result_sayings(results[call.mark]) if call.mark in results else ())
    end_of_answer()


def _ui_step(act: Answer, results: dict[str | None, Result]) -> list[Json]:
    step: list[Json] = [{"type": "step-start"}]
    if act.thought:
        step.append({"type": "reasoning", "text": f"thinking ~{act.thought}~"})
    if act.own:
        step.append({"type": "data-chart", "data": {"title": f"~{act.own}~"}})
    if act.has_blank:
        step.append({"type": "text", "text": ""})
    step += [{"type": "text", "text": _text(mark), "state": "done"} for mark in act.words]
    for call in act.calls:
        part: Json = {"type": "dynamic-tool", "toolName": call.name}
        if len(call.name) % 2:
            part = {"type": f"tool-{call.name}"}
        part |= {"toolCallId": call.told_id, "input": call.input}
        result = results.get(call.mark)
        if result is None:
            part["state"] = "input-available"
        elif result.is_error:
            part |= {"state": "output-error", "errorText": result.words}
        else:
            output: Any = result.words
            if result.file:
                output = [
                    {"type": "text", "text": result.words},
                    {"type": "media", "mediaType": result.file.media_type, "data": result.file.data},
                ]
            part |= {"state": "output-available", "output": output}
        step.append(part)
    return step + [{"type": "text", "text": _text(mark), "state": "done"} for mark in act.words_behind]


def _add_result(told: Told, form: str, data: Json, results: list[Result], *, is_late: bool) -> None:
    told.add(form, "tool", data, [saying for result in results for saying in _result_sayings(result)])
    _note_late(told, is_late=is_late)


def _note_late(told: Told, *, is_late: bool) -> None:
    if is_late:
        told.late.append(told.messages[-1].id)


_TELLERS: Final[dict[str, Callable[[Told, list[Act], _Dice, frozenset[str]], None]]] = {
    "openai": _tell_openai,
    "responses": _tell_responses,
    "anthropic": _tell_anthropic,
    "google": _tell_google,
    "ui": _tell_ui,
}
