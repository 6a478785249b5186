"""
The ready-made state of an agent's graph.

A state is a JSON object: a plain `dict`, as graph frameworks hand it to their nodes and as it is stored. So the schema is of
typed dictionaries. They describe the fields that the reducers and the observers know, cost nothing at run time, and let every
other field through as it is; a class of our own would drop or refuse it, and would have to be converted at every node.

What has no value is left out. None is read as absent, in states that come from elsewhere.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

from ..errors import InvalidValueError
from ..limits import check_count, check_id, check_optional_id, check_time, json_copy
from .reducers import check_object, merge_docs, merge_metadata, merge_tasks


class ChatTurn(TypedDict):
    """One turn of a conversation. `timestamp` is in ms. Give it an `id` where `append_messages` reduces the messages."""

    role: Literal["user", "assistant", "system"]
    content: str
    timestamp: NotRequired[int | None]
    id: NotRequired[str]


class Options(TypedDict):
    """Options for the graph's answer."""

    enhance_with_context: bool
    max_context_items: int
    include_source_info: bool
    max_tokens: int
    temperature: NotRequired[float | None]
    model_id: NotRequired[str | None]


ToolResult = TypedDict(  # noqa: UP013 - a field `input` of a class reads as the built-in, which the domain must not use
    "ToolResult",
    {
        "tool_name": str,
        "input": Any,
        "output": Any,
        "error": NotRequired[str | None],
        "execution_time_ms": NotRequired[int | None],
    },
)
"""One call of a tool. `error` is absent or None when it succeeded."""


class QueryAnalysis(TypedDict):
    """Whether one query should become several."""

    is_complex: bool
    should_split: bool
    reason: str
    suggested_queries: NotRequired[list[str] | None]


class Tasks(TypedDict, total=False):
    """Tasks about the query. Every field may be absent."""

    original_query: str
    rewritten_query: str
    required_tools: list[str]
    tool_results: list[ToolResult]
    needs_widening: bool
    widening_attempts: int
    query_analysis: QueryAnalysis
    tool_to_run: str


class DocumentMeta(TypedDict):
    """The origin of a document. `created_at` is in ms."""

    source: str
    created_at: int
    relevance_score: float
    token_count: NotRequired[int | None]
    url: NotRequired[str | None]
    mime_type: NotRequired[str | None]


class Document(TypedDict):
    """A retrieved document. Its `id` tells it from others in the state."""

    id: str
    title: str
    body: str
    metadata: DocumentMeta


class ErrorRecord(TypedDict):
    """An error in a node. `timestamp` is in ms."""

    node: str
    message: str
    timestamp: int


class StateMeta(TypedDict):
    """
    About the run, not about the answer.

    `start_time` is in ms since the epoch. `node_timings` has the ms that each node took, `token_counts` the tokens of each
    component, to watch the size of the state. `current_node` is the node that wrote last. `trace_id` is the caller's.
    """

    start_time: int
    node_timings: dict[str, float]
    token_counts: dict[str, int]
    current_node: NotRequired[str | None]
    is_final_state: NotRequired[bool | None]
    errors: NotRequired[list[ErrorRecord]]
    trace_id: NotRequired[str | None]
    span_id: NotRequired[str | None]
    execution_time_ms: NotRequired[float | None]


class AgentState(TypedDict):
    """
    The state of a graph that answers one user's query.

    `user_id` is the owner, for access and for personal retrieval. The annotations name the reducers of `AGENT_REDUCERS`, so
    that the class is the state schema of a LangGraph graph as well.
    """

    # Not `list[Document] | None`: LangGraph cannot make an empty value of that, and takes the first one unreduced.
    user_id: str
    messages: list[ChatTurn]
    options: Options
    tasks: NotRequired[Annotated[Tasks, merge_tasks]]
    docs: NotRequired[Annotated[list[Document], merge_docs]]
    generated_text: NotRequired[str | None]
    metadata: NotRequired[Annotated[StateMeta, merge_metadata]]


DEFAULT_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "enhance_with_context": True,
        "max_context_items": 5,
        "include_source_info": True,
        "max_tokens": 1000,
        "temperature": 0.7,
    }
)
"""The default options."""


def initial_state(
    user_id: str, query: str, *, now: int, trace_id: str | None = None, options: Mapping[str, Any] | None = None
) -> AgentState:
    """
    The state before the first node: one message of the user, the options, and when it began.

    Args:
        user_id: The owner.
        query: What the user asks.
        now: Milliseconds since the epoch.
        trace_id: The caller's own id of the run.
        options: Values that replace those of `DEFAULT_OPTIONS`, one by one; further ones are kept.

    Raises:
        InvalidValueError: An id, the query, the time or an option breaks a rule.
    """
    check_id(user_id, "user_id")
    if not isinstance(query, str):
        msg = f"query must be text, not {type(query).__name__}"
        raise InvalidValueError(msg)
    started_at = check_time(now, "now")
    metadata: StateMeta = {"start_time": started_at, "node_timings": {}, "token_counts": {}}
    if check_optional_id(trace_id, "trace_id") is not None:
        metadata["trace_id"] = trace_id
    return {
        "user_id": user_id,
        "messages": [{"role": "user", "content": json_copy(query, "query"), "timestamp": started_at}],
        "options": _complete(options),
        "metadata": metadata,
    }


def _complete(overrides: Mapping[str, Any] | None) -> Options:
    options: dict[str, Any] = json_copy({**DEFAULT_OPTIONS, **check_object(overrides, "options")}, "options")
    for name in ("enhance_with_context", "include_source_info"):
        if not isinstance(options[name], bool):
            msg = f"options.{name} must be true or false, not {type(options[name]).__name__}"
            raise InvalidValueError(msg)
    for name in ("max_context_items", "max_tokens"):
        check_count(options[name], f"options.{name}")
    temperature = options["temperature"]
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, int | float)):
        msg = f"options.temperature must be a number or None, not {type(temperature).__name__}"
        raise InvalidValueError(msg)
    check_optional_id(options.get("model_id"), "options.model_id")
    return cast("Options", options)
