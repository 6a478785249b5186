"""
The builders: context fragments of known shape, `hint("Use UTC")`.

Each returns a context fragment that is named as the builder. Its codec encodes to `{"type": <builder>, ...fields}` and
decodes to the data. What is optional and empty is left out. Each raises `InvalidValueError`, which names builder and field,
for values of other types. What is passed is copied.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, Self, cast

from ..errors import InvalidValueError
from .builder_codecs import BuiltCodec, GlossaryCodec, ObjectCodec, TextCodec
from .fragments import Fragment, as_fragment


class Fields:
    """The fields of one fragment, checked and copied in the order in which they are added."""

    def __init__(self, builder: str) -> None:
        self._builder = builder
        self._data: dict[str, Any] = {}

    def texts(self, **fields: str) -> Self:
        """Add fields that are text."""
        self._data.update({field: self._text(field, value) for field, value in fields.items()})
        return self

    def lists(self, **fields: Sequence[str]) -> Self:
        """Add fields that are lists of text."""
        self._data.update({field: self._list(field, value) for field, value in fields.items()})
        return self

    def optional(self, **fields: str | None) -> Self:
        """Add those fields that are text and not empty."""
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
        """The fragment of these fields."""
        return built(ObjectCodec.of(self._builder, self._data))

    def single(self, field: str, value: str) -> Fragment:
        """A fragment whose data are this text."""
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
