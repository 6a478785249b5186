"""nats-py's client with fewer detours, and with one check more."""

from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from .errors import LoginRefusedError


class DirectClient(Client):
    """
    A client that tells nobody who it is before the connection is as safe as it was asked to be.

    Messages go to the socket at once and replies to whoever waits for them, where nats-py has a queue and a task for each of
    both: of an append of 700 us that took 50.
    """

    needs_tls = False
    inbox = b""
    """What the subjects of replies begin with."""
    deliver: Callable[[Msg], None] | None = None
    """Takes them."""

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if self.deliver is None or not subject.startswith(self.inbox):
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        untyped: Any = self
        found = await untyped._process_headers(headers)  # noqa: SLF001 - its own, without types
        self.deliver(self._build_message(sid, subject, reply, data, found))

    async def _flush_pending(self, force_flush: bool = False) -> Any:  # noqa: FBT001, FBT002 - as it is called there
        writer: Any = getattr(self._transport, "_io_writer", None)
        if force_flush or writer is None or not self.is_connected or writer.transport.get_write_buffer_size():
            return await super()._flush_pending(force_flush)
        pending, self._pending, self._pending_data_size = self._pending, [], 0
        writer.write(b"".join(pending))
        return None

    def _connect_command(self) -> bytes:
        # Asked when the login is about to be sent. nats-py encrypts only when the server demands it, and whoever stands
        # between could remove that demand.
        transport: Any = self._transport
        writer = transport._io_writer  # noqa: SLF001 (nats-py has no public way to it)
        if self.needs_tls and writer.get_extra_info("ssl_object") is None:
            msg = "the server does not demand TLS, and nothing is sent without; give it a `tls` block without allow_non_tls"
            raise LoginRefusedError(msg)
        command: bytes = super()._connect_command()
        return command
