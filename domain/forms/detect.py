"""
The form of a message, told by its shape. Asked once, when a message is written; what was stored says its form.

The sets are closed: they are those of the types of the SDKs (openai 3.57, anthropic 2.14, google-genai 3.6).
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from .model import UI
from .plain import text_at

API_FORMS: Final = frozenset({UI, "openai", "responses", "anthropic", "google", "claude-code", "langchain"})
"""The forms that can be told by the shape of a message. In all of them it is an object."""

_ANTHROPIC_BLOCKS: Final = frozenset(
    {
        "bash_code_execution_tool_result",
        "code_execution_tool_result",
        "container_upload",
        "document",
        "image",
        "mcp_tool_result",
        "mcp_tool_use",
        "redacted_thinking",
        "search_result",
        "server_tool_use",
        "text_editor_code_execution_tool_result",
        "thinking",
        "tool_result",
        "tool_search_tool_result",
        "tool_use",
        "web_fetch_tool_result",
        "web_search_tool_result",
    }
)
"""The types of `ContentBlockParam` and of the MCP connector that no other form has."""

_ANTHROPIC_FIELDS: Final = ("cache_control", "citations")
"""Fields of a block of text, which look like OpenAI's but for them."""

_RESPONSES_ITEMS: Final = frozenset(
    {
        "additional_tools",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "configuration_update",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "function_call",
        "function_call_output",
        "image_generation_call",
        "item_reference",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "reasoning",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
"""The types of `ResponseInputItemParam`, but for `message`, which has a role."""

_RESPONSES_CONTENT: Final = frozenset({"input_file", "input_image", "input_text", "output_text"})

_GOOGLE_ROLES: Final = ("user", "model", "function", None)

_BOOKKEEPING: Final = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "attachment",
        "custom-title",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "summary",
        "system",
        "tag",
        "task-summary",
        "worktree-state",
    }
)
"""The types of the entries of Claude Code that hold no message."""


def form_of(data: Any) -> str | None:
    """
    Return the name of the form of a message: `ui`, `google`, `claude-code`, `anthropic`, `responses`, `openai` or `langchain`; None if none fits.

    What all share, `{"role": ..., "content": text}`, is `openai`: there is nothing in it that another form would keep and this one not.
    """
    if not isinstance(data, Mapping):
        return None
    fields = cast("Mapping[str, Any]", data)
    kind, role = text_at(fields, "type"), fields.get("role")
    if isinstance(parts := fields.get("parts"), list):
        blocks = _objects(cast("list[Any]", parts))
        if blocks is None:
            return None
        if all("type" in block for block in blocks):
            return UI
        return "google" if role in _GOOGLE_ROLES and not any("type" in block for block in blocks) else None
    if (
        kind is not None
        and ("uuid" in fields or "sessionId" in fields)
        and ("message" in fields or kind in _BOOKKEEPING)
    ):
        return "claude-code"
    content = fields.get("content")
    blocks = (_objects(cast("list[Any]", content)) or []) if isinstance(content, list) else []
    kinds = [block_kind for block in blocks if isinstance(block_kind := block.get("type"), str)]
    if isinstance(role, str):
        if kind == "message" and "stop_reason" in fields:
            return "anthropic"
        if not _ANTHROPIC_BLOCKS.isdisjoint(kinds) or any(
            name in block for block in blocks for name in _ANTHROPIC_FIELDS
        ):
            return "anthropic"
        if kind == "message" or not _RESPONSES_CONTENT.isdisjoint(kinds):
            return "responses"
        return "openai" if not {"content", "tool_calls", "function_call"}.isdisjoint(fields) else None
    if kind in _RESPONSES_ITEMS:
        return "responses"
    inner = fields.get("data")
    return "langchain" if kind is not None and isinstance(inner, Mapping) and "content" in inner else None


def is_of_form(data: Any, form: Any) -> bool:
    """Whether data may be a message of a form: of those of APIs an object; one of a transcript may be a list of its lines."""
    is_list = form == "claude-code" and isinstance(data, list)
    return not isinstance(form, str) or form not in API_FORMS or isinstance(data, dict) or is_list


def _objects(values: list[Any]) -> list[Mapping[str, Any]] | None:
    return cast("list[Mapping[str, Any]]", values) if all(isinstance(value, Mapping) for value in values) else None
