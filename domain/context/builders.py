"""
The builders: context fragments of known shape, `hint("Use UTC")`.

Each returns a context fragment that is named as the builder. Its codec encodes to `{"type": <builder>, ...fields}` and
decodes to the data. What is optional and empty is left out. Each raises `InvalidValueError`, which names builder and field,
for values of other types. What is passed is copied.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, Self, cast

import msgspec

from ..errors import FragmentConversionError, InvalidValueError
from ..limits import MAX_JSON_DEPTH
from .fragments import Fragment, as_fragment, stored_form

TYPE: Final = "type"
"""The key of a serialized fragment that names its builder."""


class BuiltCodec(msgspec.Struct, frozen=True):
    """The base of all builders' codecs: a serialized form `{"type": <builder>, ...fields}`."""

    type: str

    def shallow(self) -> dict[str, Any]:
        """The serialized form, with the fragments in it as they are."""
        raise NotImplementedError

    def decode(self) -> Any:
        raise NotImplementedError

    def encode(self) -> dict[str, Any]:
        """
        The serialized form, fragments in it included.

        Raises:
            MissingCodecError: A fragment in it has no codec.
            FragmentConversionError: A fragment in it has no serialized form, or the form would be too deep.
        """
        return cast("dict[str, Any]", serialized(self.shallow(), encode_builder))


class TextCodec(BuiltCodec, frozen=True):
    """Data that are one text, serialized as one field."""

    field: str
    text: str

    def shallow(self) -> dict[str, Any]:
        return {TYPE: self.type, self.field: self.text}

    def decode(self) -> str:
        return self.text


class ObjectCodec(BuiltCodec, frozen=True):
    """Data that are an object. Lists are kept as tuples: nobody else can change them."""

    fields: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, builder: str, data: Mapping[str, Any]) -> "ObjectCodec":
        return cls(
            builder,
            tuple(
                (name, (tuple(cast("list[Any]", value)) if isinstance(value, list) else value))
                for name, value in data.items()
            ),
        )

    def shallow(self) -> dict[str, Any]:
        return {TYPE: self.type, **self.decode()}

    def decode(self) -> dict[str, Any]:
        return {
            name: (list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value)
            for name, value in self.fields
        }


class GlossaryCodec(BuiltCodec, frozen=True):
    """Data that are a list of terms, serialized as an object."""

    entries: tuple[tuple[str, str], ...]

    def shallow(self) -> dict[str, Any]:
        """The expressions by their terms."""
        return {TYPE: self.type, "entries": dict(self.entries)}

    def decode(self) -> list[dict[str, str]]:
        return [{"term": term, "expression": expression} for term, expression in self.entries]


def encode_builder(fragment: Fragment) -> Mapping[str, Any]:
    """
    Return the serialized form of a fragment; for a built one with fragments in it unchanged.

    Raises:
        MissingCodecError: It has no codec, or is still lazy.
        FragmentConversionError: The codec gives no object with a text `type`.
    """
    codec = fragment.codec
    form = codec.shallow() if isinstance(codec, BuiltCodec) and fragment.lazy is None else stored_form(fragment)
    if not isinstance(form, Mapping) or not isinstance(cast("Mapping[Any, Any]", form).get(TYPE), str):
        msg = f"the codec of fragment {fragment.name!r} encodes to no object with a text `type`"
        raise FragmentConversionError(msg)
    return cast("Mapping[str, Any]", form)


def serialized(value: Any, encode: Callable[[Fragment], Any], depth: int = 0) -> Any:
    """
    A copy of a value with each fragment in it, at any depth, replaced by what `encode` gives for it.

    Raises:
        FragmentConversionError: The copy would be nested too deep for JSON.
    """
    if isinstance(value, Fragment):
        value = encode(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth >= MAX_JSON_DEPTH:
        msg = f"the serialized form of a fragment would be nested more than {MAX_JSON_DEPTH} levels deep"
        raise FragmentConversionError(msg)
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value).items()
        return {key: serialized(item, encode, depth + 1) for key, item in entries}
    return [serialized(item, encode, depth + 1) for item in cast("list[Any]", value)]


def check_holds_no_message(fragment: Fragment) -> None:
    """
    Refuse a context fragment that holds a message, at whatever depth.

    Raises:
        InvalidValueError: It does.
    """
    seen: dict[int, Any] = {}  # with the values: the id of what is gone is given again
    pending: list[Any] = [fragment]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, Fragment):
            if value.type == "message":
                msg = (
                    f"fragment {fragment.name!r} holds message {value.name!r}, which would become part of the system prompt; "
                    "set messages by themselves, or put their text into the fragment"
                )
                raise InvalidValueError(msg)
            pending.append(value.codec.decode() if isinstance(value.codec, BuiltCodec) else value.data)
        elif isinstance(value, Mapping):
            pending.extend(cast("Mapping[Any, Any]", value).values())
        elif isinstance(value, list | tuple):
            pending.extend(cast("list[Any]", value))


class Fields:
    """The fields of one fragment, checked and copied in the order in which they are added."""

    def __init__(self, builder: str) -> None:
        self._builder = builder
        self._data: dict[str, Any] = {}

    def texts(self, **fields: str) -> Self:
        self._data.update({field: self._text(field, value) for field, value in fields.items()})
        return self

    def lists(self, **fields: Sequence[str]) -> Self:
        self._data.update({field: self._list(field, value) for field, value in fields.items()})
        return self

    def optional(self, **fields: str | None) -> Self:
        return self.texts(**_not_empty(fields))

    def optional_lists(self, **fields: Sequence[str] | None) -> Self:
        """Add those fields that are lists of text and not empty."""
        return self.lists(**_not_empty(fields))

    def optional_rules(self, **fields: str | Sequence[str] | None) -> Self:
        """Add those fields that are text, or lists of text, and not empty."""
        for field, value in _not_empty(fields).items():
            self._data[field] = self._text(field, value) if isinstance(value, str) else self._list(field, value)
        return self

    def optional_policies(self, policies: Sequence[str | Fragment] | None) -> Self:
        """Add `policies`, a list of text and fragments, unless it is empty."""
        for field, value in _not_empty({"policies": policies}).items():
            items = self._items(field, value, "a list of text and fragments")
            self._data[field] = [self._policy(f"{field}[{place}]", item) for place, item in enumerate(items)]
        return self

    def fragment(self) -> Fragment:
        return built(ObjectCodec.of(self._builder, self._data))

    def single(self, field: str, value: str) -> Fragment:
        return built(TextCodec(self._builder, field, self._text(field, value)))

    def terms(self, field: str, value: Mapping[str, str] | Sequence[Mapping[str, str]]) -> Fragment:
        """A fragment whose data are a list of these terms."""
        if isinstance(value, Mapping):
            entries = [
                (self._text(f"a term in {field}", term), self._text(f"{field}[{term!r}]", expression))
                for term, expression in cast("Mapping[Any, Any]", value).items()
            ]
        else:
            items = self._items(field, value, "an object of text, or a list of {term, expression}")
            entries = [self._term(f"{field}[{place}]", item) for place, item in enumerate(items)]
        twice = [term for term, count in Counter(term for term, _ in entries).items() if count > 1]
        if twice:
            msg = f"{field} of {self._builder}() has the term {twice[0]!r} more than once; give each one expression"
            raise InvalidValueError(msg)
        return built(GlossaryCodec(self._builder, tuple(entries)))

    def _term(self, field: str, value: Any) -> tuple[str, str]:
        if not isinstance(value, Mapping) or set(cast("Mapping[Any, Any]", value)) != {"term", "expression"}:
            self._refuse(field, "an object of the two texts term and expression", value)
        return self._text(f"{field}.term", value["term"]), self._text(f"{field}.expression", value["expression"])

    def _text(self, field: str, value: Any) -> str:
        if not isinstance(value, str):
            self._refuse(field, "text", value)
        return str.__str__(value)

    def _list(self, field: str, value: Any) -> list[str]:
        items = self._items(field, value, "a list of text")
        return [self._text(f"{field}[{place}]", item) for place, item in enumerate(items)]

    def _items(self, field: str, value: Any, expected: str) -> Sequence[Any]:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
            self._refuse(field, expected, value)
        return cast("Sequence[Any]", value)

    def _policy(self, field: str, value: Any) -> str | Fragment:
        if isinstance(value, str):
            return str.__str__(value)
        try:
            return as_fragment(value)
        except InvalidValueError as error:
            msg = f"{field} of {self._builder}() must be text or a fragment: {error}"
            raise InvalidValueError(msg) from error

    def _refuse(self, field: str, expected: str, value: Any) -> NoReturn:
        msg = f"{field} of {self._builder}() must be {expected}, not {type(value).__name__}"
        raise InvalidValueError(msg)


def built(codec: BuiltCodec) -> Fragment:
    """The context fragment of a codec, named as its builder."""
    return Fragment(codec.type, codec.decode(), codec=codec)


def _not_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    # By its length, as what is no sequence (0, False) is to be refused, not left out.
    return {
        field: value
        for field, value in fields.items()
        if not (value is None or (isinstance(value, Sequence) and len(cast("Sequence[Any]", value)) == 0))
    }


def hint(text: str) -> Fragment:
    """Return a rule of conduct that always holds: `hint("Quote prices in euros")`. Its data are the text."""
    return Fields("hint").single("text", text)


def role(content: str) -> Fragment:
    """Return who the model is and what it does: `role("You plan weekend trips.")`. Its data are the text."""
    return Fields("role").single("content", content)


def term(name: str, definition: str) -> Fragment:
    """Return what a word means here: `term("OTA", "online travel agency")`."""
    return Fields("term").texts(name=name, definition=definition).fragment()


def guardrail(rule: str, *, reason: str | None = None, action: str | None = None) -> Fragment:
    """
    Return a limit that must not be crossed.

    Args:
        rule: What must never, or always, happen.
        reason: Why.
        action: What to do instead, where the limit is met.
    """
    return Fields("guardrail").texts(rule=rule).optional(reason=reason, action=action).fragment()


def explain(concept: str, explanation: str, *, therefore: str | None = None) -> Fragment:
    """
    Return an explanation, for what a definition alone does not convey.

    Args:
        concept: What is explained.
        explanation: How to think of it.
        therefore: What to do, given that.
    """
    return Fields("explain").texts(concept=concept, explanation=explanation).optional(therefore=therefore).fragment()


def example(question: str, answer: str, *, note: str | None = None) -> Fragment:
    """Return a question with the answer that is right, and a remark about it."""
    return Fields("example").texts(question=question, answer=answer).optional(note=note).fragment()


def clarification(when: str, ask: str, reason: str) -> Fragment:
    """
    Return when to ask back.

    Args:
        when: In which situation.
        ask: The question to ask.
        reason: Why the answer matters.
    """
    return Fields("clarification").texts(when=when, ask=ask, reason=reason).fragment()


def workflow(
    task: str, steps: Sequence[str], *, triggers: Sequence[str] | None = None, notes: str | None = None
) -> Fragment:
    """
    Return how a task is done.

    Args:
        task: What is to be done.
        steps: One after another.
        triggers: Words or events that call for it.
        notes: What else to know.
    """
    fields = Fields("workflow").texts(task=task).lists(steps=steps)
    return fields.optional_lists(triggers=triggers).optional(notes=notes).fragment()


def quirk(issue: str, workaround: str) -> Fragment:
    """Return something odd, in data or a system, and how to live with it."""
    return Fields("quirk").texts(issue=issue, workaround=workaround).fragment()


def style_guide(
    prefer: str, *, never: str | Sequence[str] | None = None, always: str | Sequence[str] | None = None
) -> Fragment:
    """Return how answers look: what to prefer, and what never and always to do (text, or a list of it)."""
    return Fields("style_guide").texts(prefer=prefer).optional_rules(never=never, always=always).fragment()


def analogy(
    concepts: Sequence[str],
    relationship: str,
    *,
    insight: str | None = None,
    therefore: str | None = None,
    pitfall: str | None = None,
) -> Fragment:
    """
    Return how concepts relate, by comparison with something known.

    Args:
        concepts: What is compared.
        relationship: The comparison.
        insight: What it shows.
        therefore: What to do, given that.
        pitfall: Where it misleads.
    """
    fields = Fields("analogy").lists(concepts=concepts).texts(relationship=relationship)
    return fields.optional(insight=insight, therefore=therefore, pitfall=pitfall).fragment()


def glossary(entries: Mapping[str, str] | Sequence[Mapping[str, str]]) -> Fragment:
    """
    Return how terms are computed or queried.

    Args:
        entries: The expressions by their terms, or a list of `{term, expression}`, which is also what its data are.
    """
    return Fields("glossary").terms("entries", entries)


def principle(title: str, description: str, *, policies: Sequence[str | Fragment] | None = None) -> Fragment:
    """Return what guides decisions, and the policies, text or fragments, that follow from it."""
    return Fields("principle").texts(title=title, description=description).optional_policies(policies).fragment()


def policy(
    rule: str,
    *,
    before: str | None = None,
    reason: str | None = None,
    policies: Sequence[str | Fragment] | None = None,
) -> Fragment:
    """
    Return a rule for a situation.

    Args:
        rule: What to do.
        before: What it must be done before.
        reason: Why.
        policies: What it consists of: text, or fragments.
    """
    return (
        Fields("policy").texts(rule=rule).optional(before=before, reason=reason).optional_policies(policies).fragment()
    )


def identity(*, name: str | None = None, role: str | None = None) -> Fragment:
    """Return who the user is: a name, and what they do."""
    return Fields("identity").optional(name=name, role=role).fragment()


def persona(name: str, *, role: str | None = None, objective: str | None = None, tone: str | None = None) -> Fragment:
    """
    Return who the model speaks as.

    Args:
        name: Its name.
        role: What it does.
        objective: What it is to achieve.
        tone: How it speaks.
    """
    return Fields("persona").texts(name=name).optional(role=role, objective=objective, tone=tone).fragment()


def alias(term: str, meaning: str) -> Fragment:
    """Return what the user means by a word of their own: `alias("the big one", "the order table")`."""
    return Fields("alias").texts(term=term, meaning=meaning).fragment()


def preference(aspect: str, value: str) -> Fragment:
    """Return what the user likes: `preference("units", "metric")`."""
    return Fields("preference").texts(aspect=aspect, value=value).fragment()


def correction(subject: str, clarification: str) -> Fragment:
    """Return what the user corrected, and how it really is."""
    return Fields("correction").texts(subject=subject, clarification=clarification).fragment()


BUILDERS: Final[tuple[Callable[..., Fragment], ...]] = (
    hint, role, term, guardrail, explain, example, clarification, workflow, quirk, style_guide, analogy, glossary,
    principle, policy, identity, persona, alias, preference, correction,
)  # fmt: skip
"""Every builder."""
