"""The stories themselves: an API takes what it told itself, the faults are such faults, and nothing has a mark that was not said."""

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from tests.domain.forms.rules import broken_rules
from tests.domain.forms.stories import FAULTS, FORMS, Told, marks_in, stories
from tests.support.soak import examples

pytestmark = pytest.mark.guard

# A form can be told well only in these ways: a fault of another kind is none there.
HARMLESS = {
    "openai": {"between", "behind", "unsigned", "shuffled"},
    "responses": {"between", "behind", "unsigned", "shuffled", "late", "apart"},
    "anthropic": {"between", "shuffled"},
    "google": {"between", "behind", "unsigned", "shuffled"},
    "ui": {"between", "behind", "unsigned", "shuffled", "late", "double", "stray", "apart", "blank"},
}


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@settings(max_examples=examples(2000, one_in=80))
def test_an_api_takes_what_it_tells_itself(form: str, data: st.DataObject) -> None:
    told = data.draw(stories([form], faults=[]))

    assert [] == broken_rules(form, [message.data for message in told.messages])


@pytest.mark.parametrize(
    ("form", "fault"), [(form, fault) for form in FORMS for fault in FAULTS if fault not in HARMLESS[form]]
)
def test_a_fault_breaks_a_rule(form: str, fault: str) -> None:
    def is_refused(told: Told) -> bool:
        return bool(broken_rules(form, [message.data for message in told.messages]))

    find(
        stories([form], faults=[fault]),
        is_refused,
        settings=settings(max_examples=2000, database=None, phases=[Phase.generate]),
    )


@pytest.mark.parametrize("fault", ["double", "stray", "missing", "late", "between", "apart"])
@given(data=st.data())
@settings(max_examples=examples(400))
def test_what_is_said_is_in_its_message_once(fault: str, data: st.DataObject) -> None:
    told = data.draw(stories(FORMS, faults=[fault, "behind", "blank"]))

    for message in told.messages:
        marks = [saying.mark for saying in told.sayings if saying.message_id == message.id]
        written = marks_in(message.data)
        assert sorted(marks) == sorted(written), message
