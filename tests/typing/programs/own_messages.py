"""Messages of a team's own shape, in a form of their own, and a projection that counts events."""

from typing import Any, assert_type

import chatledger
from chatledger import Message, NewMessage, Projection, ProjectionRows, Recorded
from chatledger.forms import ANY, Form, FormItem, Rules, Text, Translated, Writer, WrittenTurn, register, translate


def read(data: Any, _name: str, source: Any) -> list[FormItem]:
    if not isinstance(data, dict) or "words" not in data:
        return []
    return [FormItem("user", Text(str(data["words"])), source, data)]  # pyright: ignore[reportUnknownArgumentType]


class SaidWriter(Writer):
    form = "said"

    def write(self, turn: WrittenTurn) -> None:
        for item in turn.items:
            if isinstance(item.what, Text):
                self.messages.append({"speaker": turn.role, "words": item.what.text})
            else:
                self.lose(item, "it has nothing but words")


class Kinds(Projection):
    name = "kinds"

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        rows.add(recorded.type)


register(Form(name="said", read=read, write=SaidWriter, rules=Rules(ids=ANY, names=ANY)))
with chatledger.open("memory:", projections=[Kinds()]) as ledger:
    ledger.create_chat("trip", "ada")
    stored = ledger.add_messages("trip", [NewMessage("user", {"speaker": "human", "words": "hello"}, form="said")])
    assert_type(stored, list[Message])
    assert_type(translate(stored, "said"), Translated)
    with ledger.projection("kinds") as kinds:
        for key, value in kinds.range():
            assert_type(key, str | int | tuple[str | int, ...])
            print(key, value)
