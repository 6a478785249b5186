"""Every form into every form: rules of providers are kept, nothing is lost unsaid, and the beginning of a chain stays the same."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.domain.forms.rules import broken_rules
from tests.domain.forms.stories import FAULTS, FORMS, File, Told, marks_in, stories
from tests.support.soak import examples

from chatledger.domain.forms.model import Call, Result, input_of, result_text
from chatledger.domain.forms.reading import items_of
from chatledger.domain.forms.translate import Translated, translate

TOLD = [*((form,) for form in FORMS), FORMS]
PAIRS = [(told, target) for told in TOLD for target in FORMS]
NAMES = ["-".join(told) + " into " + target for told, target in PAIRS]


def translated(told: Told, form: str, **options: Any) -> Translated:
    """The story in another form."""
    return translate(told.messages, form, **options)


def answered(form: str, messages: Sequence[Any]) -> set[tuple[str, str]]:
    """The marks of results and of the calls that they answer: those of their id, or of their name where there is none."""
    pairs: set[tuple[str, str]] = set()
    calls: list[tuple[str | None, str, str]] = []
    for message in messages:
        for item in items_of(form, message):
            what = item.what
            if isinstance(what, Call):
                calls.append((what.id, what.name, marks_in(input_of(what))[0]))
            elif isinstance(what, Result):
                keys = [call[0] if what.call_id is not None else call[1] for call in calls]
                mark = calls.pop(keys.index(what.call_id if what.call_id is not None else what.name))[2]
                pairs |= {(answer, mark) for answer in marks_in(result_text(what))}
    return pairs


def there(told: Told, messages: Any) -> list[str]:
    """The marks in messages, those of files in texts included."""
    text = json.dumps(messages)
    files = [saying.mark for saying in told.sayings if saying.kind == "file"]
    return [mark for mark in marks_in(messages) if mark not in files] + [
        mark for mark in files if f"~{mark}~" in text or File(mark).data in text
    ]


@pytest.mark.parametrize(("told_in", "target"), PAIRS, ids=NAMES)
@given(data=st.data())
@settings(max_examples=examples(600))
def test_rules_are_kept(told_in: Sequence[str], target: str, data: st.DataObject) -> None:
    """Whatever a chain is like, the API of the target takes it."""
    told = data.draw(stories(told_in))

    assert [] == broken_rules(target, translated(told, target).messages)
    assert [] == broken_rules(target, translated(told, target, open_calls="drop").messages)
    assert [] == broken_rules(target, translated(told, target, stray_results="text").messages)


@pytest.mark.parametrize(("told_in", "target"), PAIRS, ids=NAMES)
@given(data=st.data())
@settings(max_examples=examples(600))
def test_what_is_missing_is_named(told_in: Sequence[str], target: str, data: st.DataObject) -> None:
    """All that is said, called and answered is there once, but for what `dropped` names; what others signed goes to nobody else."""
    told = data.draw(stories(told_in))
    whole = translated(told, target)

    present = there(told, whole.messages)
    assert len(present) == len(set(present))
    missing = [saying for saying in told.sayings if saying.mark not in present]
    named = [(dropped.message_id, dropped.what) for dropped in whole.dropped]
    for saying in missing:
        assert saying.may_be_dropped or (saying.kind == "result" and not told.has_clear_pairs), saying
        assert any(message_id == saying.message_id for message_id, _ in named), saying
    if told.has_clear_pairs:
        pairs = {
            (saying.mark, saying.answers)
            for saying in told.sayings
            if saying.kind == "result" and saying.mark in present
        }
        assert pairs == answered(target, whole.messages)
    for form, secret in told.secrets:
        assert target in {form, "ui"} or secret not in str(whole.messages)


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@settings(max_examples=examples(600))
def test_the_same_form_is_given_as_it_came(form: str, data: st.DataObject) -> None:
    """Values are equal, and nothing is dropped."""
    told = data.draw(stories([form], faults=[]))
    came = [message.data for message in told.messages]

    assert Translated(came, []) == translated(told, form) == translated(told, form, open_calls="keep")


@pytest.mark.parametrize(("told_in", "target"), PAIRS, ids=NAMES)
@given(data=st.data())
@settings(max_examples=examples(600))
def test_the_beginning_of_a_chain_begins_its_translation(
    told_in: Sequence[str], target: str, data: st.DataObject
) -> None:
    """What a provider has cached of a chat it finds again when the chat goes on."""
    told = data.draw(stories(told_in, faults=[fault for fault in FAULTS if fault != "late"]))
    whole = translated(told, target).messages

    assert whole == translated(told, target).messages
    for place, message in enumerate(told.messages):
        if message.name == "user":
            begun = translate(told.messages[: place + 1], target).messages
            assert begun == whole[: len(begun)]


@pytest.mark.parametrize(("told_in", "target"), PAIRS, ids=NAMES)
@given(data=st.data())
@settings(max_examples=examples(600))
def test_there_and_back(told_in: Sequence[str], target: str, data: st.DataObject) -> None:
    """A translation that is stored is translated as the chain that it is of."""
    told = data.draw(stories(told_in))
    translation = translated(told, target)
    stored = [
        type(told.messages[0])(f"t{place}", target, "user", message)
        for place, message in enumerate(translation.messages)
    ]

    form = data.draw(st.sampled_from(FORMS))
    back = translate(stored, form)
    assert [] == broken_rules(form, back.messages)
    missing = {saying for saying in told.sayings if saying.mark not in there(told, back.messages)}
    assert all(saying.may_be_dropped or (saying.kind == "result" and not told.has_clear_pairs) for saying in missing)
