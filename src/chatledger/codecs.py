"""Messages in the forms that models take, to the stored form and back: OpenAI's, Anthropic's, Google's, and LangChain's."""

from chatledger.domain.context.formats.message_format import (
    ANTHROPIC,
    GOOGLE,
    OPENAI,
    RESPONSES,
    UI,
    Format,
    FormatName,
    MessageFormat,
    to_anthropic,
    to_google,
    to_openai,
    to_responses,
)
from chatledger.infra.ledger.engine.formats.by_name import (
    LANGCHAIN,
    message_format,
)
from chatledger.infra.ledger.engine.formats.langchain import to_langchain

__all__ = [
    "ANTHROPIC",
    "GOOGLE",
    "LANGCHAIN",
    "OPENAI",
    "RESPONSES",
    "UI",
    "Format",
    "FormatName",
    "MessageFormat",
    "message_format",
    "to_anthropic",
    "to_google",
    "to_langchain",
    "to_openai",
    "to_responses",
]
