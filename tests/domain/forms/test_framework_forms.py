"""Every form into those of frameworks, and of what their writers wrote into every form of an API: the same claims as of the APIs' own."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.forms.retold import Retold, retold
from tests.domain.forms.rules import broken_rules
from tests.domain.forms.rules_of_frameworks import RULES
from tests.domain.forms.stories import FORMS, Told, stored, stories
from tests.domain.forms.test_translation import SOME, SOURCES, cuts, faults_of, name_in, shown, told_by

from chatledger.domain.forms.reading import items_of, known_forms
from chatledger.domain.forms.translate import translate
from chatledger.domain.values import Message

pytestmark = pytest.mark.guard

# A story is drawn once for all of them: drawing takes longer than telling.
FRAMEWORKS = [form for form in RULES if form in known_forms() and form != "langchain"]


def in_chat(form: str, messages: Sequence[Any]) -> list[Message]:
    """Messages of a form as a chat has stored them."""
    return [stored(f"n{place}", form, name_in(form, value), value) for place, value in enumerate(messages)]


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
@SOME
def test_each_form_into_a_frameworks_keeps_its_rules(source: str, data: st.DataObject) -> None:
    told = data.draw(told_by(source))

    for form in FRAMEWORKS:
        for open_calls in ("answer", "keep", "drop"):
            translated = translate(told.chain(), form, open_calls=open_calls)
            is_open = open_calls == "keep"
            assert [] == RULES[form](translated.messages, may_be_open=is_open), shown(told, form, translated.messages)
            faults = faults_of(told, form, translated, may_drop_calls=open_calls == "drop")
            assert [] == faults, shown(told, form, translated.messages)


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
@SOME
def test_what_its_writer_wrote_is_of_the_form(source: str, data: st.DataObject) -> None:
    """It is given as it came, and told in every form of an API: nothing is lost but what is named."""
    told = data.draw(told_by(source))
    for form in FRAMEWORKS:
        _check_written(told, form)


def _check_written(told: Told, form: str) -> None:
    written = translate(told.chain(), form).messages
    chain = in_chat(form, written)

    again = translate(chain, form)
    assert written == again.messages, shown(told, form, written)
    assert [] == again.dropped
    assert written == translate(chain, form, open_calls="keep").messages
    read = [item.what for message in chain for item in items_of(form, message.data, message.name, message)]
    for other in FORMS:
        there = translate(chain, other)
        assert [] == broken_rules(other, there.messages), shown(told, other, there.messages)
        marks = {mark.mark: mark for mark in retold(other, there.messages)}
        lost = [mark for mark in retold(form, written) if mark.mark not in marks]
        assert all(mark.mark[0] in "tof" for mark in lost), (lost, read)
        assert not lost or there.dropped, (lost, read)
        pairs = [(mark.mark, mark.answers) for mark in retold(form, written) if mark.mark[0] == "r"]
        assert all(marks[mark].answers == answers for mark, answers in pairs if mark in marks), shown(
            told, other, written
        )


@pytest.mark.parametrize("source", FORMS)
@given(data=st.data())
@SOME
def test_there_and_back_the_same_is_said(source: str, data: st.DataObject) -> None:
    told = data.draw(stories([source], faults=[]))
    for form in FRAMEWORKS:
        _check_there_and_back(told, source, form)


def _check_there_and_back(told: Told, source: str, form: str) -> None:
    original = [message.data for message in told.messages]

    there = translate(told.chain(), form)
    back = translate(in_chat(form, there.messages), source)

    assert [] == broken_rules(source, back.messages), shown(told, form, there.messages)
    came_back = {mark.mark for mark in retold(source, back.messages)}
    may_be_lost = {saying.mark for saying in told.sayings if saying.may_be_dropped}
    lost = [mark.mark for mark in retold(source, original) if mark.mark not in came_back]
    assert set(lost) <= may_be_lost, shown(told, form, there.messages)
    assert not lost or there.dropped or back.dropped
    assert _exchanges(source, original, form) == _exchanges(source, back.messages, form), shown(
        told, form, back.messages
    )


def _exchanges(source: str, messages: Sequence[Any], form: str) -> list[Retold]:
    """Words, calls and results in order, with roles; files may stand elsewhere, and thoughts be dropped."""
    marks = [mark for mark in retold(source, messages) if mark.mark[0] in "wcr"]
    if form in {"strands", "adk"}:  # have no place for who instructs
        return [Retold(mark.mark, mark.place, mark.role.replace("system", "user"), mark.answers) for mark in marks]
    return marks


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
@SOME
def test_what_was_told_stays_as_the_chain_grows(source: str, data: st.DataObject) -> None:
    told = data.draw(told_by(source))
    messages = told.chain()
    for form, cut in product(FRAMEWORKS, cuts(told)):
        part, whole = translate(messages[:cut], form).messages, translate(messages, form).messages
        assert part == whole[: len(part)], shown(told, form, whole)
