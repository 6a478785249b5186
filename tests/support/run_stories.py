"""Stories of runs and of their regeneration, decided and replayed as all stories are, without a ledger."""

from collections.abc import Sequence
from typing import Any

from tests.support.stories import CHAT, Neighboured, Story

from chatledger.domain.chat.decide_runs import (
    RunAnswer,
    RunDraft,
    decide_annotate,
    decide_complete_run,
    decide_fail_run,
    decide_record_run,
    decide_suspend_run,
)
from chatledger.domain.chat.events import Body
from chatledger.domain.chat.regeneration import (
    decide_begin_regeneration,
    decide_repeat_run,
    plan_regeneration,
    regeneration_of,
)
from chatledger.domain.chat.runs import Regeneration, RegenerationPlan
from chatledger.domain.values import NewMessage


def new_run(run_id: str, trigger: str | None = None, *references: str, **rest: Any) -> RunDraft:
    """A run to record, on the thread `t`."""
    fields = {
        "id": f"record of {run_id}",
        "thread_id": "t",
        "assistant_id": run_id,
        "trigger_message_id": trigger,
        **rest,
    }
    return RunDraft(run_id=run_id, references=references, **fields)


def answer_of(message_id: str, data: Any = "an answer", *, branch: str | None = None, **rest: Any) -> RunAnswer:
    """An answer that a run produced."""
    return RunAnswer(draft=NewMessage("assistant", data, id=message_id, **rest), branch=branch)


class RunStory(Story):
    """A chat with these messages on `main`. Each command writes its events, and returns them."""

    def __init__(self, *message_ids: str, elsewhere: Sequence[str] = ()) -> None:
        super().__init__()
        self.chats[CHAT] = Neighboured(CHAT, elsewhere)
        self.chain(*message_ids)

    def decided(self, bodies: list[Body]) -> list[Body]:
        """Write events."""
        self.write(bodies)
        return bodies

    def record(
        self, run_id: str, trigger: str | None = None, *references: str, answer: RunAnswer | None = None, **rest: Any
    ) -> list[Body]:
        """A run became known."""
        new = new_run(run_id, trigger, *references, **rest)
        return self.decided(decide_record_run(self.chat(), new, answer=answer, now=self.time))

    def complete(self, run_id: str, answer: RunAnswer | None = None, **rest: Any) -> list[Body]:
        """A run ended with what it produced."""
        return self.decided(decide_complete_run(self.chat(), run_id, answer=answer, now=self.time, **rest))

    def fail(self, run_id: str, **rest: Any) -> list[Body]:
        """A run ended without an answer."""
        return self.decided(decide_fail_run(self.chat(), run_id, **rest))

    def suspend(self, run_id: str, **rest: Any) -> list[Body]:
        """A run waits for an answer."""
        return self.decided(decide_suspend_run(self.chat(), run_id, **rest))

    def annotate(self, message_id: str, **changes: Any) -> list[Body]:
        """Something was said of a message."""
        return self.decided(decide_annotate(self.chat(), message_id, **changes))

    def plan(self, message_id: str, max_cascade: int = 100) -> RegenerationPlan:
        """The runs that an edit makes stale."""
        return plan_regeneration(CHAT, message_id, self.chat().runs(), max_cascade=max_cascade, lineage={})

    def begin(
        self, plan: RegenerationPlan, new_message_id: str, *, branch: str | None = None, regeneration_id: str = "g"
    ) -> list[Body]:
        """Runs are to be repeated."""
        bodies = decide_begin_regeneration(
            self.chat(), plan, regeneration_id=regeneration_id, new_message_id=new_message_id, branch=branch,
            branch_id=f"branch of {regeneration_id}", now=self.time, lineage={},
        )  # fmt: skip
        return self.decided(bodies)

    def repeat(self, repeats: str, run_id: str, *, regeneration_id: str = "g", **rest: Any) -> list[Body]:
        """A run is repeated."""
        options = {"record_id": f"record of {run_id}", "is_new_id": False, "status": "running", **rest}
        return self.decided(
            decide_repeat_run(self.chat(), regeneration_id, repeats, run_id=run_id, now=self.time, **options)
        )

    def regeneration(self, regeneration_id: str = "g") -> Regeneration:
        """A regeneration as it stands."""
        record = self.chat().regeneration(regeneration_id)
        assert record is not None
        return regeneration_of(self.chat(), record)

    def read(self, branch: str) -> list[str]:
        """The ids on a branch, root first; of a copy the id of its original, with a stroke."""
        chat = self.chat()
        head = chat.branch(branch)
        assert head is not None
        chain = [] if head.head_message_id is None else chat.get_chain(head.head_message_id)
        return [message.id if message.copied_from is None else f"{message.copied_from}'" for message in chain]
