"""Messages in the forms that models take: OpenAI chat messages and LangChain messages, to the stored form and back."""

from chatledger.domain.context.engine.port import MessageFormat
from chatledger.domain.context.formats.to_openai import to_openai
from chatledger.infra.ledger.engine.formats.by_name import (
    LANGCHAIN,
    OPENAI,
    UI,
    langchain_message,
    message_format,
    openai_message,
)
from chatledger.infra.ledger.engine.formats.langchain import to_langchain

__all__ = [
    "LANGCHAIN",
    "OPENAI",
    "UI",
    "MessageFormat",
    "langchain_message",
    "message_format",
    "openai_message",
    "to_langchain",
    "to_openai",
]
