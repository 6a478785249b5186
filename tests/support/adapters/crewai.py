# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
"""A model for crews that gives the answers that it has."""

from typing import Any

from crewai import Agent, BaseLLM, Crew, Task


class ScriptedModel(BaseLLM):  # type: ignore[misc]  # CrewAI is not installed where types are checked
    """Gives one answer after the other."""

    answers: list[str] = []  # noqa: RUF012 - a field of a pydantic model

    def call(self, *arguments: Any, **options: Any) -> str:
        """Return the next answer."""
        del arguments, options
        return self.answers.pop(0)


def crew(*answers: str, checkpoint: Any) -> Crew:
    """A crew with a task for each answer."""
    agent = Agent(
        role="guide", goal="answer", backstory="a local", llm=ScriptedModel(model="none", answers=list(answers))
    )
    tasks = [
        Task(description=f"Task {number}", expected_output="an answer", agent=agent, name=f"task-{number}")
        for number in range(len(answers))
    ]
    return Crew(agents=[agent], tasks=tasks, checkpoint=checkpoint)
