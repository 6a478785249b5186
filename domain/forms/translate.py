"""
Translation of a chain into another form.

    translate(messages, "anthropic").messages

Three steps: each message is read by its own form, its items are arranged as turns, and each turn is given as it came, where all
of it came in the target's form, or written anew.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import InvalidValueError
from .arrange import OpenCalls, StrayResults, arrange, runs
from .model import Dropped, Form, Source
from .reading import known_form, known_forms


class Translated(msgspec.Struct, frozen=True):
    """A chain in another form: its messages, and what they do not say of it."""

    messages: list[Any]
    dropped: list[Dropped]


def translate(
    messages: Sequence[Source],
    form: str | Form,
    *,
    open_calls: OpenCalls = "answer",
    stray_results: StrayResults = "drop",
) -> Translated:
    """
    Translate a chain into a form, so that its API takes it.

    What came in this form is given as it came, as far as the API takes it so. Ids of calls are kept where the API allows them
    and no earlier call has them; else they are made from what they were, always the same. The translation of the beginning of
    a chain begins that of the whole, but for results that came late.

    Args:
        messages: The chain, oldest first.
        form: The form, or its name.
        open_calls: `answer` gives each call without a result the error `interrupted`, `drop` leaves the call out, and `keep` does
            neither for calls of the turn that ends the chain.
        stray_results: Whether a result whose call is not there is left out or told as a text of the user.

    Returns:
        The messages, and a `Dropped` for all that they leave out.

    Raises:
        InvalidValueError: The form, or that of a message, is not known.
    """
    target = form if isinstance(form, Form) else known_form(form)
    if target is None or target.write is None:
        raise _unknown(form if isinstance(form, str) else form.name)
    chain = list(messages)
    forms = {message.form for message in chain}
    if forms <= {target.name} and open_calls == "keep":
        writer = target.write([], [])
        writer.put(chain)
        return Translated(writer.messages, [])
    for name in forms:
        if name is not None and name != target.name and known_form(name) is None:
            raise _unknown(name)
    arranged = arrange(chain, target, open_calls=open_calls, stray_results=stray_results)
    writer = target.write(arranged.turns, arranged.dropped)
    changed = arranged.changed
    changed.update(number for number, message in enumerate(chain) if message.form != target.name)
    for turns, numbers in runs(arranged):
        if changed.isdisjoint(numbers) and all(turn.is_told for turn in turns):
            sources = [chain[number] for number in numbers]
            if writer.takes(turns, sources):
                writer.put(sources)
                continue
        for turn in turns:
            writer.write(turn)
    return Translated(writer.messages, arranged.dropped)


def _unknown(name: str) -> InvalidValueError:
    known = ", ".join(repr(known) for known in known_forms())
    return InvalidValueError(
        f"no form {name!r} of messages is known to translate from or into; known are {known}; "
        "chatledger.forms.register(Form(...)) makes another one known"
    )
