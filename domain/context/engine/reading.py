"""Reading: the context for a model, its estimated cost, and a dump of all that an engine holds."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache as remembered
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from ...chat.save import Foreseen, SavePreview
from ...errors import InvalidValueError, TranslationError
from ...forms.anthropic import CACHE_MARK
from ...forms.anthropic import NAME as ANTHROPIC
from ...forms.detect import form_of
from ...forms.items import Dropped
from ...forms.model import Form, FormName, any_json
from ...forms.reading import known_form
from ...forms.translate import OpenCalls, Translated, translate
from ...render.prepared import Rendering
from ...render.xml import XmlRenderer
from ...values import Message
from ...wire import Value
from ..caching import CachePlan, CacheProvider, SystemPrompt, as_computed, check_provider, plan_cache, stable_first
from ..estimate import Estimate, Models, Tokenizer, estimate, rough_tokens, tokens_of_text
from ..fitting import Fit, Omitted
from ..fragments import Fragment, foreign_errors, stored_form
from ..messages import StoredCodec, fragment_of
from ..reminders import prompt_fragments
from ..summary import StoredChain, is_real_user_message
from .saving import PendingMessages

T = TypeVar("T")


class Resolved(Value, frozen=True, kw_only=True):
    """
    The context for a model.

    Args:
        system_prompt: The context fragments, rendered.
        messages: The conversation, oldest first, in the chosen form.
        omitted: The older messages that `last_n` or `max_tokens` left out; None when all are there.
        tokens: What system prompt and messages take, if `max_tokens` was given.
        uncounted: Files and other parts among them that are not in `tokens`, for only a provider knows what they take.
        cache: The breakpoints for a provider's cache, if `cache` was given.
        dropped: What the conversation says and this form cannot.
    """

    system_prompt: str
    messages: list[Any]
    omitted: Omitted | None = None
    tokens: int | None = None
    uncounted: int = 0
    cache: CachePlan | None = None
    dropped: list[Dropped] = msgspec.field(default_factory=list[Dropped])


class Head(Value, frozen=True, kw_only=True):
    """The last message of a conversation: its id, and its name, which is the role."""

    id: str
    name: str


class ContextReading(PendingMessages):
    """The part of a context engine that reads."""

    async def resolve(
        self,
        renderer: Rendering | None = None,
        *,
        form: FormName | Form = "ui",
        open_calls: OpenCalls = "answer",
        strict: bool = False,
        last_n: int | None = None,
        max_tokens: int | None = None,
        counter: Tokenizer | str = rough_tokens,
        cache: CacheProvider | None = None,
    ) -> Resolved:
        """
        Return the system prompt and the messages for a model. Nothing is stored, but for the chat on first use.

        The messages are those of the branch after a save at this moment: pending ones come last, and a pending edit stands
        in place of what it edits, without what came after that. After `regenerate` they end with the question. Hidden ones are
        left out, and replaced ones replaced; see docs/reference/annotations.md.

        With `last_n` or `max_tokens` they are the last whole turns that fit: a turn begins with a message of a user, and no
        result of a tool comes without its call. What is left out is neither read nor cut silently: `omitted` tells it.

        Args:
            renderer: How the context fragments are written: a `Renderer`, or anything else with `render(fragments) -> str`.
                `XmlRenderer()` when None.
            form: The form of the messages: one of `chatledger.forms.FormName`, or a `Form`. Messages of this form are given as they
                came, others are translated, see `chatledger.forms.translate`. None of them holds the system prompt.
            open_calls: What becomes of a call of a tool that has no result, as after a run that was stopped: `answer` gives it the
                error `interrupted`, `drop` leaves it out, and `keep` keeps those of the last turn.
            strict: Refuse to leave anything out: an error with the first thing that `dropped` would have named.
            last_n: At most this many stored and pending messages (>= 1), in whole turns. All when None.
            max_tokens: At most this many tokens (>= 1), the system prompt included. What a provider adds is not counted: the
                few tokens that frame a message, definitions of tools, and files.
            counter: Counts the tokens of a text for `max_tokens` and `cache`: a function, or the name of an encoding, as for
                `chatledger.tokens.tokenizer`. By default an estimate, a quarter of the characters.
            cache: Arrange the prompt for the cache of `anthropic` or `openai`: fragments that are computed, or whose metadata
                say `volatile`, come last in the system prompt, and the breakpoints are told. Messages in the form `anthropic`
                get their `cache_control`. The next answer that is set and saved carries the hashes; see `cache_report`.

        Returns:
            The system prompt, empty without context fragments, and the messages, oldest first.

        Raises:
            ContextTooLargeError: The newest turn alone does not fit, with the system prompt.
            OwnerMismatchError: The chat belongs to another user.
            ResolverError: A computed value failed, or the codec of a message, a form, the counter, or the renderer.
            InvalidValueError: A limit is no whole number of at least 1, or there is no such provider, encoding or form.
            TranslationError: With `strict`: something in the conversation has no place in this form.
            AmbiguousEditError, WrongChatError, UnknownLazyTypeError, MissingCodecError: What a save would raise.
        """
        target, provider = _form_named(form), check_provider(cache)
        count = remembered(self._port.tokenizer(counter))
        fit = (
            None if last_n is None and max_tokens is None else Fit(last_n=last_n, max_tokens=max_tokens, counter=count)
        )
        await self._ready()
        prompt = await self._prompt(renderer, is_cached=provider is not None)
        system_tokens = 0 if max_tokens is None else tokens_of_text(prompt.text, count, of="the system prompt")
        limits = None if fit is None else msgspec.structs.replace(fit, system_tokens=system_tokens)
        preview = await self._preview(limits)
        messages = self._decoded(preview.for_model)
        translated = _translated(messages, target, open_calls)
        is_marked_anew = provider == target.name == ANTHROPIC  # so marks that messages came with are not lost
        dropped = [lost for lost in translated.dropped if not (is_marked_anew and lost.what == CACHE_MARK)]
        if strict and dropped:
            first = dropped[0]
            raise TranslationError(target.name, first.message_id, first.what, first.why)
        planned = None
        if provider is not None:
            planned = plan_cache(
                provider,
                prompt,
                messages,
                lambda chain: _translated(chain, target, open_calls).messages,
                form=target.name,
                counter=count,
                render=written_by(renderer),
            )
        self._record = None if planned is None else planned.record
        return Resolved(
            system_prompt=prompt.text,
            messages=_as_objects(translated.messages if planned is None else planned.messages, target),
            omitted=preview.omitted,
            tokens=None if preview.tokens is None else preview.tokens + system_tokens,
            uncounted=preview.uncounted,
            cache=None if planned is None else planned.plan,
            dropped=dropped,
        )

    async def get_messages(self, *, form: FormName | Form = "ui", open_calls: OpenCalls = "answer") -> list[Any]:
        """
        Return the messages of `resolve`.

        For programs that make their own system prompt: context fragments are neither computed nor rendered.

        Args:
            form: As for `resolve`.
            open_calls: As for `resolve`.
        """
        target = _form_named(form)
        preview = await self._preview()
        return _as_objects(_translated(self._decoded(preview.for_model), target, open_calls).messages, target)

    async def head_message(self) -> Head | None:
        """
        Return id and name of the last message, pending or stored; None when there is none.

        Raises:
            InvalidValueError: The last pending message is lazy and has no id yet.
        """
        branch = await self._ready()
        if self._pending:
            fragment = self._pending[-1].fragment
            if fragment.id is None:
                msg = f"the last pending message, {fragment.name!r}, has no id before it is resolved or saved"
                raise InvalidValueError(msg)
            return Head(id=fragment.id, name=fragment.name)
        if self._after is UNSET:
            messages = await self._port.get_messages(self._chat_id, branch=branch, limit=1, before=None)
        else:
            messages = [] if self._after is None else await self._port.get_chain(self._after, limit=1)
        return Head(id=messages[0].id, name=messages[0].name) if messages else None

    async def first_user_message(self) -> Message | None:
        """Return the first message of the conversation that a user wrote, stored or pending; None when there is none."""

        def first(foreseen: Foreseen, chain: StoredChain) -> Message | None:
            return chain.first_turn() or next(iter(_turns(foreseen.new)), None)

        return await self._foreseen(first)

    async def turn_count(self) -> int:
        """Count the user messages, stored and pending, but for those that a program put in (`synthetic` in their metadata)."""
        return await self._foreseen(lambda foreseen, chain: chain.turn + len(_turns(foreseen.new)))

    async def _foreseen(self, decide: Callable[[Foreseen, StoredChain], T]) -> T:
        """Decide on what a save would add; afterwards the engine has seen the head of its branch."""
        branch = await self._ready()
        save = self._save_of(await self._ready_to_save(), branch, on_conflict="rebase")
        seen, answer = await self._port.foresee(
            self._chat_id, save, lambda foreseen, chain: (foreseen.read_head, decide(foreseen, chain))
        )
        self._read_head = seen
        return answer

    async def _prompt(self, renderer: Rendering | None, *, is_cached: bool) -> SystemPrompt:
        fragments, render = prompt_fragments(await self._computed()), written_by(renderer)
        return stable_first(fragments, render) if is_cached else SystemPrompt(fragments, render(fragments), 0)

    async def _computed(self) -> list[Fragment]:
        """Replace computed values in the context fragments for good."""
        async with self._port.alone():
            before = list(self._context)
            after = await self._port.compute(before, context=self, sandbox=self._sandbox)
            after = [new if new is old else as_computed(new) for old, new in zip(before, after, strict=True)]
            computed = {id(old): new for old, new in zip(before, after, strict=True)}
            self._context = [computed.get(id(fragment), fragment) for fragment in self._context]
        return after

    def _decoded(self, messages: list[Message]) -> list[Message]:
        """The messages, with what the codec of a pending one decodes in place of what it encodes."""
        codecs: dict[str, Fragment] = {}
        for entry in self._pending:
            if entry.fragment.codec is not None and not isinstance(entry.fragment.codec, StoredCodec):
                codecs |= {entry.spare_id: entry.fragment, entry.fragment.id or entry.spare_id: entry.fragment}
        return [_decoded_by(codecs[message.id], message) if message.id in codecs else message for message in messages]

    async def _preview(self, fit: Fit | None = None) -> SavePreview:
        """The chain as it would be after a save, or what fits; afterwards the engine has seen the head of its branch."""
        branch = await self._ready()
        entries = await self._ready_to_save()
        save = self._save_of(entries, branch, on_conflict="rebase")
        preview = await self._port.preview_save(self._chat_id, save, fit=fit)
        self._read_head = preview.read_head
        return preview


def written_by(renderer: Rendering | None) -> Callable[[list[Fragment]], str]:
    """Return the function that writes fragments as text; XML when no renderer is given."""
    if renderer is None:
        return XmlRenderer().render
    if isinstance(renderer, type) or not callable(getattr(renderer, "render", None)):
        msg = f"a renderer is a value with a method render(fragments), such as XmlRenderer(), not {renderer!r}"
        raise InvalidValueError(msg)
    return partial(_text_by, renderer)


def _text_by(renderer: Rendering, fragments: list[Fragment]) -> str:
    with foreign_errors("renderer", type(renderer).__name__, None):
        text: Any = renderer.render(fragments)
    if not isinstance(text, str):
        msg = f"render() of the renderer {type(renderer).__name__} must return text, not {type(text).__name__}"
        raise InvalidValueError(msg)
    return text


def _decoded_by(fragment: Fragment, message: Message) -> Message:
    assert fragment.codec is not None, "its codec was seen"
    with foreign_errors("codec", fragment.name, fragment.id):
        data = fragment.codec.decode()
    return msgspec.structs.replace(message, data=data, form=form_of(data))


def _form_named(form: str | Form) -> Form:
    known = form if isinstance(form, Form) else known_form(form) if isinstance(form, str) else None
    return Form(name=str(form), read=any_json) if known is None else known  # which `translate` refuses


def _translated(messages: Sequence[Message], form: Form, open_calls: OpenCalls) -> Translated:
    with foreign_errors("form", form.name, None):
        return translate(messages, form, open_calls=open_calls)


def _as_objects(messages: list[Any], form: Form) -> list[Any]:
    if form.decode is None:
        return messages
    with foreign_errors("form", form.name, None):
        return form.decode(messages)


def _turns(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if is_real_user_message(message)]


_NO_MODELS: Final[Models] = {}


class Inspecting(ContextReading):
    """The part of a context engine that describes it: estimates, and all that it holds."""

    async def estimate(
        self,
        model_id: str,
        renderer: Rendering | None = None,
        *,
        models: Models = _NO_MODELS,
        tokenizer: Tokenizer = rough_tokens,
    ) -> Estimate:
        """
        Return the tokens and the price of what `resolve` gives, as the input of a model. Nothing is fetched.

        Args:
            model_id: A key of `models`.
            renderer: How context fragments are written; `XmlRenderer()` when None.
            models: Prices and limits by model, see `chatledger.tokens.ModelInfo`.
            tokenizer: Counts the tokens of a text; a quarter of the characters by default.

        Raises:
            ModelNotFoundError: `models` does not have it.
        """
        preview = await self._preview()
        context = await self._computed()
        return _estimate(context, preview.for_model, model_id, renderer, models, tokenizer)

    async def inspect(
        self,
        model_id: str | None = None,
        renderer: Rendering | None = None,
        *,
        models: Models = _NO_MODELS,
        tokenizer: Tokenizer = rough_tokens,
    ) -> dict[str, Any]:
        """
        Return all that the engine holds, as JSON values, for a debugger or a bug report.

        Args:
            model_id: A key of `models`; without one there is no estimate.
            renderer: How context fragments are written; `XmlRenderer()` when None.
            models: As for `estimate`.
            tokenizer: As for `estimate`.

        Returns:
            `estimate`, `rendered` (the system prompt), `fragments` (with `context`, `pending` and `persisted`), `graph`, and
            `meta` (with `chat_id`, `branch` and `timestamp`, in ms).

        Raises:
            ModelNotFoundError: `models` does not have it.
        """
        branch = await self._ready()
        entries = await self._ready_to_save()
        nothing = msgspec.structs.replace(self._save_of((), branch, on_conflict="rebase"), after=UNSET)
        stored = await self._port.preview_save(self._chat_id, nothing)
        context = await self._computed()
        written = written_by(renderer)
        costs = None
        if model_id is not None:
            preview = await self._preview()
            costs = msgspec.to_builtins(_estimate(context, preview.for_model, model_id, renderer, models, tokenizer))
        return {
            "estimate": costs,
            "rendered": written(prompt_fragments(context)),
            "fragments": {
                "context": [{"id": one.id, "name": one.name, "rendered": written([one])} for one in context],
                "pending": [_described(entry.fragment) for entry in entries],
                "persisted": [_described(fragment_of(message)) for message in stored.messages],
            },
            "graph": msgspec.to_builtins(await self._port.get_graph(self._chat_id)),
            "meta": {"chat_id": self._chat_id, "branch": branch, "timestamp": self._port.clock_ms()},
        }


def _estimate(
    context: Iterable[Fragment],
    messages: Iterable[Message],
    model_id: str,
    renderer: Rendering | None,
    models: Models,
    tokenizer: Tokenizer,
) -> Estimate:
    written = written_by(renderer)
    return estimate(
        [*prompt_fragments(context), *map(fragment_of, messages)],
        model_id,
        models=models,
        tokenizer=tokenizer,
        render=lambda fragment: written([fragment]),
    )


def _described(fragment: Fragment) -> dict[str, Any]:
    return {"id": fragment.id, "name": fragment.name, "data": stored_form(fragment)}
