"""
Prompt caching: prompts whose volatile parts come last, breakpoints for the cache of a provider, and reports on changed prefixes.

Providers keep what they computed for the beginning of a prompt, and use it again for a prompt that begins with the same bytes:
tools, then the system prompt, then the messages. Anthropic does so up to blocks marked with `cache_control`, of which a request
has at most four; OpenAI does so by itself.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast, get_args

import msgspec

from ..errors import InvalidValueError
from ..forms.anthropic import CACHE_MARK, unmarked
from ..forms.plain import object_at
from ..values import OWNER, Message
from ..wire import Value
from .estimate import Tokenizer, tokens_of_message, tokens_of_text
from .fragments import Fragment
from .in_forms import MessageInHand
from .messages import ASSISTANT

CacheProvider = Literal["anthropic", "openai"]
"""A provider that caches the beginnings of prompts."""

VOLATILE: Final = "volatile"
"""The key in a fragment's metadata that says whether it may differ from one request to the next."""

_CONTROL: Final = {"type": "ephemeral"}
_UNMARKABLE: Final = ("thinking", "redacted_thinking")
_SHORT: Final = 16
_RECORD: Final = "cache"


class Breakpoint(Value, frozen=True, kw_only=True):
    """
    A place where a prefix of the prompt ends that the next request may share.

    Args:
        messages: How many messages of the context the prefix holds; 0 where it ends in the system prompt.
        prefix: The SHA-256 of the prefix, in hexadecimal digits. Tools, which come before it, are not in it.
        tokens: Its size. Providers keep nothing below a minimum that depends on the model.
    """

    messages: int
    prefix: str
    tokens: int


class CachePlan(Value, frozen=True, kw_only=True):
    """
    The arrangement of a context for a provider's cache.

    Args:
        provider: `anthropic` or `openai`.
        system: The system prompt as text blocks: first what stays the same, and then what is volatile, if anything. For Anthropic
            the first carries `cache_control`. Without a system prompt there are none.
        breakpoints: At most three, the shortest prefix first: the stable part of the system prompt; the messages up to the
            previous answer, which an earlier request ended with; all messages.
    """

    provider: CacheProvider
    system: list[dict[str, Any]]
    breakpoints: list[Breakpoint]


class SystemPrompt(msgspec.Struct, frozen=True):
    """A system prompt: its fragments in order, the text of all of them, and where in the text the stable ones end."""

    fragments: list[Fragment]
    text: str
    stable: int


def check_provider(value: Any) -> CacheProvider | None:
    """
    A provider, or None.

    Raises:
        InvalidValueError: There is no such provider.
    """
    if value is not None and value not in get_args(CacheProvider):
        providers = " or ".join(map(repr, get_args(CacheProvider)))
        msg = f"cache must be {providers}, not {value!r}"
        raise InvalidValueError(msg)
    return cast("CacheProvider | None", value)


def is_volatile(fragment: Fragment) -> bool:
    """Whether a fragment may differ from one request to the next: its metadata say so."""
    return bool(fragment.metadata.get(VOLATILE))


def as_computed(fragment: Fragment) -> Fragment:
    """Mark a fragment with a computed value as volatile, unless it says otherwise: another engine may compute another value."""
    return fragment.with_metadata(**{VOLATILE: fragment.metadata.get(VOLATILE, True)})


def stable_first(fragments: Iterable[Fragment], render: Callable[[list[Fragment]], str]) -> SystemPrompt:
    """Return the prompt with volatile fragments after all others, each in their order."""
    ordered = sorted(fragments, key=is_volatile)
    text = render(ordered)
    stable = render([fragment for fragment in ordered if not is_volatile(fragment)])
    # Not every form is written from top to bottom: TOML puts scalars before tables.
    return SystemPrompt(ordered, text, len(stable) if text.startswith(stable) else 0)


class _Prefixes:
    """Hashes and sizes of growing prefixes."""

    def __init__(self, counter: Tokenizer) -> None:
        self._hash, self._counter, self._tokens = hashlib.sha256(), counter, 0

    def text(self, text: str) -> None:
        self._hash.update(text.encode())
        self._tokens += tokens_of_text(text, self._counter, of="the system prompt")

    def message(self, message: Any, form: str) -> None:
        if not isinstance(message, dict):  # an object of somebody's own form
            message = repr(message)
        self._hash.update(
            b"\n" + json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        )
        self._tokens += tokens_of_message(MessageInHand("", "", form, message), self._counter)[0]

    def end(self, messages: int) -> Breakpoint:
        return Breakpoint(messages=messages, prefix=self._hash.hexdigest(), tokens=self._tokens)


class Planned(msgspec.Struct, frozen=True):
    """A plan, the messages with its marks, and what the answer to them is to carry."""

    plan: CachePlan
    messages: list[Any]
    record: dict[str, Any]


def plan_cache(
    provider: CacheProvider,
    prompt: SystemPrompt,
    messages: Sequence[Message],
    translate: Callable[[Sequence[Message]], list[Any]],
    *,
    form: str,
    counter: Tokenizer,
    render: Callable[[list[Fragment]], str],
) -> Planned:
    """
    Plan where the prompt may be cut, mark it there, and record its prefixes.

    Messages in Anthropic's form get `cache_control` in the last block before a breakpoint, and lose what they were stored with;
    those in other forms stay as they are.

    `translate`: gives a chain in the form of the request. `counter`: counts the tokens of a text.
    """
    plain = translate(messages)
    ends = {_previous_end(messages, len(plain), translate), len(plain)}
    prefixes, breakpoints = _Prefixes(counter), list[Breakpoint]()
    prefixes.text(prompt.text[: prompt.stable])
    if prompt.stable:
        breakpoints.append(prefixes.end(0))
    prefixes.text(prompt.text[prompt.stable :])
    for count, message in enumerate(plain, 1):
        prefixes.message(message, form)
        if count in ends:
            breakpoints.append(prefixes.end(count))
    is_marked = provider == "anthropic"
    plan = CachePlan(provider=provider, system=_system(prompt, is_marked=is_marked), breakpoints=breakpoints)
    if is_marked and form == provider:
        marks = {point.messages - 1 for point in breakpoints}
        bare = map(unmarked, plain)
        plain = [_marked(message) if at in marks else message for at, message in enumerate(bare)]
    record = CacheRecord(
        provider=plan.provider,
        form=form,
        fragments=[(fragment.name, fragment.id, _short(render([fragment]))) for fragment in prompt.fragments],
        stable=sum(not is_volatile(fragment) for fragment in prompt.fragments),
        system=_short(prompt.text),
        first=messages[0].id if messages else None,
        prefixes=[(point.messages, point.prefix[:_SHORT]) for point in plan.breakpoints if point.messages],
    )
    return Planned(plan, plain, msgspec.json.decode(msgspec.json.encode(record), type=dict[str, Any]))


def _previous_end(messages: Sequence[Message], whole: int, translate: Callable[[Sequence[Message]], list[Any]]) -> int:
    """Return how many messages of this form the previous request held, as far as that is known."""
    records = (record_of(message) for message in reversed(messages))
    record = next((record for record in records if record is not None), None)
    if record is not None and record.prefixes and record.prefixes[-1][0] <= whole:
        return record.prefixes[-1][0]
    last_answer = max((at for at, message in enumerate(messages) if message.name == ASSISTANT), default=0)
    return len(translate(messages[:last_answer]))


def _system(prompt: SystemPrompt, *, is_marked: bool) -> list[dict[str, Any]]:
    texts = [prompt.text[: prompt.stable], prompt.text[prompt.stable :]]
    control: dict[str, Any] = {CACHE_MARK: dict(_CONTROL)} if is_marked else {}
    return [{"type": "text", "text": text, **({} if at else control)} for at, text in enumerate(texts) if text.strip()]


def _marked(message: Any) -> Any:
    """The message of Anthropic's form with a mark in the last block that can carry one."""
    content: Any = object_at(message).get("content")
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    for at in range(len(blocks) - 1, -1, -1):
        block = object_at(blocks[at])
        if block and block.get("type") not in _UNMARKABLE and block.get("text") != "":
            blocks[at] = {**block, CACHE_MARK: dict(_CONTROL)}
            return {**message, "content": blocks}
    return message


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_SHORT]


class CacheRecord(msgspec.Struct, frozen=True, kw_only=True):
    """
    The prefixes of a request, as its answer carries them in its notes; hashes are shortened to 16 hexadecimal digits.

    Args:
        provider: Whose cache the prompt was arranged for.
        form: The name of the form of its messages.
        fragments: Name, id and hash of each fragment, in order.
        stable: How many of them, the first ones, are not volatile.
        system: The hash of the whole system prompt.
        first: The id of the first message.
        prefixes: Numbers of messages, each with the hash of the prompt up to there.
    """

    provider: str
    form: str
    fragments: list[tuple[str, str | None, str]]
    stable: int
    system: str
    first: str | None
    prefixes: list[tuple[int, str]]


def record_of(message: Message) -> CacheRecord | None:
    record = object_at(message.notes, OWNER).get(_RECORD)
    if record is None:
        return None
    try:
        return msgspec.convert(record, CacheRecord)
    except msgspec.ValidationError:
        return None


def with_record(notes: Mapping[str, Any] | None, record: Mapping[str, Any]) -> dict[str, Any]:
    return {**(notes or {}), OWNER: {**object_at(notes, OWNER), _RECORD: dict(record)}}


class CacheTurn(Value, frozen=True, kw_only=True):
    """
    The prefix of one request, compared with that of the request before it on the branch.

    Args:
        message_id: The id of its answer.
        provider: `anthropic` or `openai`.
        is_kept: Whether all that the request before had sent was sent again unchanged; True for the first.
        part: Where the prompt changed first: `system`, `messages`, `form` or `provider`; None where it did not.
        fragment: The name of the context fragment that changed it, if one did; with its id in brackets if it has one.
        reason: The change in words, empty where there is none.
    """

    message_id: str
    provider: str
    is_kept: bool
    part: Literal["system", "messages", "form", "provider"] | None = None
    fragment: str | None = None
    reason: str = ""


def cache_report(messages: Iterable[Message]) -> list[CacheTurn]:
    """
    Tell where the prefix of a conversation changed between one request and the next, and what changed it.

    Args:
        messages: A chain, oldest first. Answers that were saved after `resolve(cache=...)` carry the prefixes of their requests;
            other messages are passed over.

    Returns:
        One entry for each such answer, in order; none where there are none.
    """
    turns: list[CacheTurn] = []
    before: CacheRecord | None = None
    for message in messages:
        record = record_of(message)
        if record is not None:
            turns.append(_turn(message.id, before, record))
            before = record
    return turns


def _turn(message_id: str, before: CacheRecord | None, now: CacheRecord) -> CacheTurn:
    def changed(part: Any, reason: str, fragment: str | None = None) -> CacheTurn:
        return CacheTurn(
            message_id=message_id, provider=now.provider, is_kept=False, part=part, fragment=fragment, reason=reason
        )

    if before is None:
        return CacheTurn(message_id=message_id, provider=now.provider, is_kept=True)
    if before.provider != now.provider:
        return changed("provider", f"the provider was {before.provider!r}")
    if before.fragments != now.fragments:
        at, fragment, how = _changed_fragment(before.fragments, now.fragments)
        kind = "fragment" if at < now.stable else "volatile fragment"
        return changed("system", f"{kind} {fragment} {how}", fragment)
    if before.system != now.system:
        return changed("system", "the same fragments were rendered in another way")
    if before.form != now.form:
        return changed("form", f"the form was {before.form!r}")
    if before.first != now.first:
        return changed(
            "messages", "the conversation begins with another message: older ones were left out or summarised"
        )
    if not set(before.prefixes[-1:]) <= set(now.prefixes):
        return changed("messages", "a message that was sent before was edited, hidden, replaced or left out")
    return CacheTurn(message_id=message_id, provider=now.provider, is_kept=True)


def _changed_fragment(
    before: Sequence[tuple[str, str | None, str]], now: Sequence[tuple[str, str | None, str]]
) -> tuple[int, str, str]:
    """Return the index of the first fragment that differs, its name, and how it changed."""
    at = next((at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), None)
    if at is None:
        at = min(len(before), len(now))
        return (at, _named(now[at]), "was added") if len(now) > at else (at, _named(before[at]), "was removed")
    old, new = before[at], now[at]
    if old in now[at:]:
        return at, _named(new), "moved forward" if new in before[at:] else "was added"
    if new in before[at:]:
        return at, _named(old), "was removed"
    if old[:2] == new[:2]:
        return at, _named(new), "changed"
    return at, _named(new), f"took the place of {_named(old)}"


def _named(fragment: tuple[str, str | None, str]) -> str:
    name, fragment_id, _ = fragment
    return name if fragment_id is None else f"{name} ({fragment_id})"
