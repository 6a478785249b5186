"""A chat backend: it asks, answers, forks, searches and looks back."""

from collections.abc import Sequence
from typing import assert_type

import chatledger
from chatledger import Branch, Chat, ContextEngine, Ledger, Message, Page, Resolved, SearchHit, assistant, user
from chatledger.errors import ChatledgerError, HeadConflictError
from chatledger.fragments import role


def reply(messages: Sequence[Message]) -> str:
    return f"{len(messages)} messages, the last one: {messages[-1].text}"


def answer(ledger: Ledger, chat_id: str, text: str) -> Message:
    (question,) = ledger.append(chat_id, [user(text)])
    try:
        (stored,) = ledger.append(chat_id, [assistant(reply(ledger.get_messages(chat_id)))], expected_head=question.id)
    except HeadConflictError as error:
        assert_type(error.actual, str | None)
        raise
    return stored


with chatledger.open("memory:") as ledger:
    assert_type(ledger.create_chat("trip", "ada", title="Riga", metadata={"tags": ["city", 3]}), Chat)
    first = answer(ledger, "trip", "Where to in May?")
    assert_type(ledger.fork("trip", first.id), Branch)
    assert_type(ledger.get_page("trip"), Page)
    for hit in ledger.search("may", user_id="ada"):
        assert_type(hit, SearchHit)
        print(hit.message.text.upper(), hit.snippet)
    for recorded in ledger.history("trip"):
        print(recorded.position + 1, recorded.type, recorded.to_dict()["type"])
    with ledger.as_of(1) as past:
        assert_type(past.get_messages("trip"), list[Message])
    assert_type(ledger.for_user("ada").list_chats(limit=5), list[Chat])

    engine = ContextEngine(ledger, "trip", "ada").set(role("Be brief"), user("And in June?"))
    engine.save()
    resolved = engine.resolve(form="openai")
    assert_type(resolved, Resolved)
    print(resolved.system_prompt, resolved.messages)
    try:
        ledger.move_head("trip", "main", None, expected="another")
    except ChatledgerError as error:
        print(error)
