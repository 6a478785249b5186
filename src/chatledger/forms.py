"""Forms of messages: a chain as the API of another model takes it, and forms of your own."""

from chatledger.domain.context.in_forms import to_anthropic, to_google, to_openai, to_responses
from chatledger.domain.forms.items import (
    Call,
    Dropped,
    File,
    FormItem,
    Json,
    Own,
    Reasoning,
    Refusal,
    Result,
    Source,
    Text,
    What,
)
from chatledger.domain.forms.model import ANY, Form, FormName, Rules
from chatledger.domain.forms.reading import items_of, known_form, known_forms, register
from chatledger.domain.forms.translate import OpenCalls, StrayResults, Translated, translate
from chatledger.domain.forms.writing import Writer, WrittenTurn, answers, arguments_of, input_of, result_text
from chatledger.infra.ledger.langchain import to_langchain

__all__ = [
    "ANY",
    "Call",
    "Dropped",
    "File",
    "Form",
    "FormItem",
    "FormName",
    "Json",
    "OpenCalls",
    "Own",
    "Reasoning",
    "Refusal",
    "Result",
    "Rules",
    "Source",
    "StrayResults",
    "Text",
    "Translated",
    "What",
    "Writer",
    "WrittenTurn",
    "answers",
    "arguments_of",
    "input_of",
    "items_of",
    "known_form",
    "known_forms",
    "register",
    "result_text",
    "to_anthropic",
    "to_google",
    "to_langchain",
    "to_openai",
    "to_responses",
    "translate",
]
