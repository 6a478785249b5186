"""
Estimates of a context before it is sent: tokens, cost, and whether it fits.

Prices and limits come from a table that the caller gives; nothing is fetched. An estimate counts text. What a provider adds
to it, such as the few tokens that frame each message and the definitions of tools, is not in it, nor what files cost.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from ..errors import InvalidValueError, ModelNotFoundError
from ..forms.items import Call, File, FormItem, Own, Reasoning, Refusal, Result, Text
from ..forms.reading import items_of
from ..forms.writing import arguments_of, result_text
from ..limits import check_count
from ..packing import readable_text
from ..values import UI, Chat, Message, NewMessage
from ..wire import Value
from .fragments import Fragment, foreign_errors, is_message_fragment
from .in_forms import MessageInHand, chain_of
from .messages import as_fragments, draft_of

RAW: Final = "raw"
"""The field that holds what the provider said, word for word: the last one replaces those before."""


def usage_of(chat: Chat) -> Mapping[str, Any] | None:
    """The token counts of a chat, from its metadata."""
    usage = (chat.metadata or {}).get("usage")
    return cast("Mapping[str, Any]", usage) if isinstance(usage, Mapping) else None


def add_usage(total: Mapping[str, Any] | None, usage: Mapping[str, Any]) -> dict[str, Any]:
    """
    The sum of token counts, field by field and also in nested objects.

    A field that neither has stays absent; None counts as absent. `raw` is the last given.

    Raises:
        InvalidValueError: A count is no number of at least 0.
    """
    if not isinstance(usage, Mapping):
        msg = f"usage must be an object of token counts, not {type(usage).__name__}"
        raise InvalidValueError(msg)
    summed = dict(total or {})
    for name, count in usage.items():
        if count is None:
            continue
        before = summed.get(name)
        if name == RAW:
            summed[name] = count
        elif isinstance(count, Mapping):
            nested = cast("Mapping[str, Any]", before) if isinstance(before, Mapping) else None
            summed[name] = add_usage(nested, cast("Mapping[str, Any]", count))
        elif isinstance(count, bool) or not isinstance(count, int | float) or not count >= 0:
            msg = f"the token count {name!r} must be a number of at least 0, not {type(count).__name__}"
            raise InvalidValueError(msg)
        else:
            earlier = before if isinstance(before, int | float) and not isinstance(before, bool) else 0
            summed[name] = earlier + count
    return summed


Tokenizer = Callable[[str], int]
"""Returns the number of tokens of a text."""

_CHARACTERS_PER_TOKEN: Final = 4
_UNIT: Final = 1_000_000


class ModelInfo(Value, frozen=True, kw_only=True):
    """
    The limits and prices of a model.

    Args:
        provider: Who offers it, such as `openai`.
        input_price: Of 1,000,000 input tokens, in whatever currency the table uses.
        context: How many tokens its context window holds.
        output: How many tokens an answer has at most.

    Raises:
        InvalidValueError: The price is negative or no number, or a limit is no whole number of at least 0.
    """

    provider: str
    input_price: float
    context: int
    output: int

    def __post_init__(self) -> None:
        price: Any = self.input_price
        if not isinstance(price, int | float) or isinstance(price, bool) or not 0 <= price < math.inf:
            msg = f"input_price must be a number of at least 0, not {price!r}"
            raise InvalidValueError(msg)
        check_count(self.context, "context")
        check_count(self.output, "output")

    def cost(self, tokens: int) -> float:
        """Return the cost of input tokens, in the currency of the price."""
        return tokens / _UNIT * self.input_price


Models = Mapping[str, ModelInfo]
"""The table of models by their ids."""


class ModelLimits(Value, frozen=True, kw_only=True):
    """The limits of the model in tokens, and whether the estimated tokens alone exceed its context window."""

    context: int
    output: int
    exceeds_context: bool


class FragmentEstimate(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The estimate of one fragment. `uncounted` is how many of its parts are files and the like, whose tokens only a provider knows."""

    id: str | None
    name: str
    tokens: int
    cost: float
    uncounted: int = 0


class Estimate(Value, frozen=True, kw_only=True):
    """The estimate of a context: `tokens` and `cost` are the sums of its fragments. `msgspec.to_builtins` gives it as JSON values."""

    model: str
    provider: str
    tokens: int
    cost: float
    limits: ModelLimits
    fragments: list[FragmentEstimate]


def estimate(
    fragments: Iterable[Fragment | Message | NewMessage],
    model_id: str,
    *,
    models: Models,
    tokenizer: Tokenizer,
    render: Callable[[Fragment], str],
) -> Estimate:
    """
    Return what fragments and messages take as the input of a model.

    Args:
        fragments: Context fragments, and messages: pending ones, and those that were read from a ledger.
        model_id: A key of `models`.
        models: Prices and limits.
        tokenizer: Counts the tokens of a text, such as `rough_tokens` or what `chatledger.tokens.tokenizer` gives.
        render: Gives the text of one context fragment. Each is counted as rendered alone: the sum leaves out what a renderer
            writes between them.

    Returns:
        In the order of the fragments. A message is counted by what a model reads of it: its text and reasoning, the names,
        arguments and results of its tool calls, and the JSON of data that are no UIMessage. Files and other parts that are
        no text add to `uncounted` instead; sources and data parts are nothing that a model reads.

    Raises:
        ModelNotFoundError: `models` does not have it.
        MissingCodecError: A message fragment is still lazy, or has no codec.
        InvalidValueError: The tokenizer gave no whole number.
        ResolverError: The tokenizer, or the codec of a message, raised.
    """
    if not isinstance(model_id, str):
        msg = f"model_id must be text, such as 'openai:gpt-4o', not {type(model_id).__name__}"
        raise InvalidValueError(msg)
    info = models.get(model_id)
    if info is None:
        raise ModelNotFoundError(model_id)
    counted = [_counted(fragment, tokenizer, render, info) for fragment in as_fragments(fragments)]
    tokens = sum(entry.tokens for entry in counted)
    limits = ModelLimits(context=info.context, output=info.output, exceeds_context=tokens > info.context)
    return Estimate(
        model=model_id, provider=info.provider, tokens=tokens, cost=info.cost(tokens), limits=limits, fragments=counted
    )


def rough_tokens(text: str) -> int:
    """
    Return a rough number of tokens: a quarter of the characters (Unicode code points), rounded up.

    It fits English prose and code. Numbers take about twice as many tokens; Chinese, Japanese and Korean text takes two to
    five times as many. `chatledger.tokens.tokenizer` counts exactly.
    """
    return math.ceil(len(text) / _CHARACTERS_PER_TOKEN)


def tokens_of_text(text: str, tokenizer: Tokenizer, *, of: str, part_id: str | None = None) -> int:
    """
    Count the tokens of a text, which is that of a named part of the prompt.

    Raises:
        InvalidValueError: The tokenizer gave no whole number.
        ResolverError: The tokenizer raised; its error is chained.
    """
    with foreign_errors("tokenizer", of, part_id):
        return check_count(tokenizer(readable_text(text)), "the result of the tokenizer")


def tokens_of_message(message: Message | NewMessage | MessageInHand, tokenizer: Tokenizer) -> tuple[int, int]:
    """
    Count the tokens of a message, and those of its parts whose tokens only a provider knows.

    Raises:
        InvalidValueError: The tokenizer gave no whole number.
        ResolverError: The tokenizer raised; its error is chained.
    """
    (source,) = chain_of(message)
    items = items_of(source.form, source.data, source.name)
    text = "\n".join(line for item in items for line in _lines(item))
    return tokens_of_text(text, tokenizer, of=source.name, part_id=source.id or None), sum(map(_uncounted, items))


def _counted(
    fragment: Fragment, tokenizer: Tokenizer, render: Callable[[Fragment], str], info: ModelInfo
) -> FragmentEstimate:
    uncounted = 0
    if is_message_fragment(fragment):
        tokens, uncounted = tokens_of_message(draft_of(fragment), tokenizer)
    else:
        tokens = tokens_of_text(render(fragment), tokenizer, of=fragment.name, part_id=fragment.id)
    return FragmentEstimate(
        id=fragment.id, name=fragment.name, tokens=tokens, cost=info.cost(tokens), uncounted=uncounted
    )


def _lines(item: FormItem) -> list[str]:
    what = item.what
    if isinstance(what, Call):
        return [*([what.name] if what.name else []), arguments_of(what)]
    if isinstance(what, Result):
        return [result_text(what)]
    return [what.text] if isinstance(what, Text | Refusal | Reasoning) else []


def _uncounted(item: FormItem) -> int:
    """Count the files in an item, and blocks that only its API knows; sources and data parts are for people."""
    what = item.what
    if isinstance(what, Result):
        return sum(isinstance(part, File) for part in what.content) if isinstance(what.content, list) else 0
    return int(isinstance(what, File) or (isinstance(what, Own) and what.origin != UI))
