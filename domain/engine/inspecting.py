"""Looking into an engine: what its context costs, and all that it holds."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ..context.drafts import fragment_of
from ..context.estimate import Estimate, Models, Tokenizer, estimate, rough_tokens
from ..context.fragment import Fragment, stored_form
from ..context.reminders import prompt_fragments
from ..renderers.base import Renderer
from ..values import Message
from .reading import Reading, written_by

_NO_MODELS: Final[Models] = {}


class Inspecting(Reading):
    """The part of a context engine that tells about itself."""

    async def estimate(
        self,
        model_id: str,
        renderer: Renderer | None = None,
        *,
        models: Models = _NO_MODELS,
        tokenizer: Tokenizer = rough_tokens,
    ) -> Estimate:
        """
        Return the tokens and the price of what `resolve` gives, as the input of a model. Nothing is fetched.

        Args:
            model_id: A key of `models`.
            renderer: How context fragments are written; `XmlRenderer()` when None.
            models: Prices and limits by model, see `chatledger.tokens.ModelInfo`.
            tokenizer: Counts the tokens of a text; a quarter of the characters by default.

        Raises:
            ModelNotFoundError: `models` does not have it.
        """
        preview = await self._preview()
        context = await self._computed()
        return _estimate(context, preview.messages, model_id, renderer, models, tokenizer)

    async def inspect(
        self,
        model_id: str | None = None,
        renderer: Renderer | None = None,
        *,
        models: Models = _NO_MODELS,
        tokenizer: Tokenizer = rough_tokens,
    ) -> dict[str, Any]:
        """
        Return all that the engine holds, as JSON values, for a debugger or a bug report.

        Args:
            model_id: A key of `models`; without one there is no estimate.
            renderer: How context fragments are written; `XmlRenderer()` when None.
            models: As for `estimate`.
            tokenizer: As for `estimate`.

        Returns:
            `estimate`, `rendered` (the system prompt), `fragments` (with `context`, `pending` and `persisted`), `graph`, and
            `meta` (with `chat_id`, `branch` and `timestamp`, in ms).

        Raises:
            ModelNotFoundError: `models` does not have it.
        """
        branch = await self._ready()
        entries = await self._ready_to_save()
        stored = await self._port.preview_save(self._chat_id, self._save_of((), branch, on_conflict="rebase"))
        context = await self._computed()
        written = written_by(renderer)
        costs = None
        if model_id is not None:
            preview = await self._preview()
            costs = msgspec.to_builtins(_estimate(context, preview.messages, model_id, renderer, models, tokenizer))
        return {
            "estimate": costs,
            "rendered": written.render(prompt_fragments(context)),
            "fragments": {
                "context": [{"id": one.id, "name": one.name, "rendered": written.render([one])} for one in context],
                "pending": [_described(entry.fragment) for entry in entries],
                "persisted": [_described(fragment_of(message)) for message in stored.messages],
            },
            "graph": msgspec.to_builtins(await self._port.get_graph(self._chat_id)),
            "meta": {"chat_id": self._chat_id, "branch": branch, "timestamp": self._port.clock_ms()},
        }


def _estimate(
    context: Iterable[Fragment],
    messages: Iterable[Message],
    model_id: str,
    renderer: Renderer | None,
    models: Models,
    tokenizer: Tokenizer,
) -> Estimate:
    written = written_by(renderer)
    return estimate(
        [*prompt_fragments(context), *map(fragment_of, messages)],
        model_id,
        models=models,
        tokenizer=tokenizer,
        render=lambda fragment: written.render([fragment]),
    )


def _described(fragment: Fragment) -> dict[str, Any]:
    return {"id": fragment.id, "name": fragment.name, "data": stored_form(fragment)}
