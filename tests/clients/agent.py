"""
The graph that both servers serve, without a model of a provider. What it does follows from the first word of the last question:

    weather CITY, steps N       one call of a tool, or N of them one after the other
    approve, ask                interrupts: for a tool that is to be approved, and with a question of its own
    research TOPIC              a subgraph, which tells its progress; `research approve` interrupts in it
    hold NAME                   streams a half, tells that it has begun, and the other half when a file opens the gate
    fail                        raises

All else is answered, word by word. There is nothing random in it, so answers of two servers can be compared.
"""

import json
import os
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final, TypedDict

import anyio
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

GATES: Final = anyio.Path(os.environ.get("CLIENTS_GATES", "."))
"""The folder of the gates of `hold`: the file NAME opens it, and NAME.begun says that a run waits there."""
QUESTION: Final = "I have a question."
MAIL: Final = {"to": "ada@example.org", "body": "Hello"}


class Script(BaseChatModel):
    """A model that says what the last question asks for."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=next_message(messages))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if last_question(messages).startswith("hold "):
            await wait_at_gate(last_question(messages).split()[1])
        return self._generate(messages)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        message = next_message(messages)
        for number, word in enumerate(str(message.content).split(" ")):
            if word == "|":
                await wait_at_gate(last_question(messages).split()[1])
            yield ChatGenerationChunk(message=AIMessageChunk(content=f" {word}" if number else word))
        for call in message.tool_calls:
            chunk = tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=0)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))


def last_question(messages: Sequence[BaseMessage]) -> str:
    """Return the text of the last human message."""
    return str(next(message.text for message in reversed(messages) if isinstance(message, HumanMessage)))


def next_message(messages: Sequence[BaseMessage]) -> AIMessage:
    """Return what the model says next."""
    last, text = messages[-1], last_question(messages)
    word, _, rest = text.partition(" ")
    last_question_at = max(number for number, message in enumerate(messages) if isinstance(message, HumanMessage))
    questions = sum(isinstance(message, HumanMessage) for message in messages)
    called = sum(isinstance(message, ToolMessage) for message in messages[last_question_at:])
    if word == "fail":
        msg = "the model is broken"
        raise ValueError(msg)
    if (word == "weather" and not called) or (word == "steps" and called < int(rest)):
        return _calling("", "weather", {"city": rest}, len(messages))
    if isinstance(last, ToolMessage):
        return AIMessage(f"The tool said: {last.text}")
    if word == "approve":
        return _calling("I want to send a mail.", "send_mail", MAIL, len(messages))
    if word == "ask":
        return AIMessage(QUESTION)
    if word == "hold":
        return AIMessage(f"Before {rest} | after {rest}")
    return AIMessage(f"Answer {questions} to: {text}")


def _calling(content: str, name: str, args: dict[str, Any], number: int) -> AIMessage:
    return AIMessage(content, tool_calls=[{"name": name, "args": args, "id": f"call_{number}", "type": "tool_call"}])


async def wait_at_gate(name: str) -> None:
    """Tell that a run is here, and wait until the gate is opened."""
    await (GATES / f"{name}.begun").touch()
    while not await (GATES / name).exists():  # noqa: ASYNC110 - of another process
        await anyio.sleep(0.02)


class State(TypedDict, total=False):
    """Messages, and notes that programs write by hand."""

    messages: Annotated[list[AnyMessage], add_messages]
    notes: list[str]


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"4 °C and rain in {city}"


model: Final = Script()


def route(state: State) -> str:
    """Choose the first node by the question."""
    word = last_question(state["messages"]).partition(" ")[0]
    return "research" if word == "research" else "model"


async def call_model(state: State) -> State:
    """Say what is next."""
    return {"messages": [await model.ainvoke(state["messages"])]}


def after_model(state: State) -> str:
    """Do what the model called for."""
    last = state["messages"][-1]
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    if calls:
        return "review" if calls[0]["name"] == "send_mail" else "tools"
    return "ask" if last.text == QUESTION else END


def review(state: State) -> State:
    """Ask whether the mail may be sent, in the form that chat interfaces show with buttons."""
    request = {"name": "send_mail", "args": MAIL, "description": "Send a mail"}
    config = {"action_name": "send_mail", "allowed_decisions": ["approve", "edit", "reject"]}
    decision = interrupt({"action_requests": [request], "review_configs": [config]})
    last = state["messages"][-1]
    assert isinstance(last, AIMessage)
    text = json.dumps(decision, sort_keys=True)
    return {"messages": [ToolMessage(text, tool_call_id=last.tool_calls[0]["id"] or "", name="send_mail")]}


def ask(state: State) -> State:
    """Ask a question of its own form."""
    answer = interrupt({"question": "Really?", "options": ["yes", "no"]})
    return {"messages": [AIMessage(f"You answered: {answer}")]}


async def look(state: State) -> State:
    """Tell the progress, and what was found."""
    get_stream_writer()({"progress": "looking"})
    return {"messages": [await model.ainvoke([HumanMessage(f"found {last_question(state['messages'])}")])]}


def publish(state: State) -> State:
    """Ask within the subgraph, where the question says so."""
    if last_question(state["messages"]) != "research approve":
        return {}
    answer = interrupt({"question": "Publish it?"})
    return {"messages": [AIMessage(f"Of the subgraph: {answer}")]}


def build() -> Any:
    """Return the graph, compiled."""
    research: Any = StateGraph(State)
    research.add_node("look", look)
    research.add_node("publish", publish)
    research.add_edge(START, "look")
    research.add_edge("look", "publish")
    builder: Any = StateGraph(State)
    builder.add_node("model", call_model)
    builder.add_node("tools", ToolNode([weather]))
    builder.add_node("review", review)
    builder.add_node("ask", ask)
    builder.add_node("research", research.compile())
    builder.add_conditional_edges(START, route, ["model", "research"])
    builder.add_conditional_edges("model", after_model, ["tools", "review", "ask", END])
    builder.add_edge("tools", "model")
    builder.add_edge("review", "model")
    return builder.compile()


graph = build()
