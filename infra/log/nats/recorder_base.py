"""The base of all recorders: an open stream, and appends after the last message of each subject."""

from collections.abc import Sequence
from typing import ClassVar

from eventsourcing.persistence import IntegrityError, OperationalError

from .append import Ack, Message, SlotEmptyError, SlotTakenError, append_messages, conflict, damaged
from .client import Deadline, JetStreamClient
from .reading import VERSION, last_on_subject
from .records import NOTHING, Head, HeadCache, IdType, Records, event_version
from .stream import StreamState, delete_stream, open_stream, stream_info
from .watcher import LogWatcher

HEADS = 10_000


class StreamRecorder:
    """
    The base of all recorders: an open stream. Not a recorder of the library itself, so that those can be combined.

    Args:
        client: The connection, which may serve many recorders.
        stream: The name of the stream; one per application.
        id_type: What originator ids are, `uuid` or `text`.
        create: Create the stream when it is absent. Never do so to get a lost stream back: see `StreamAbsentError`.
        replicas: Of a stream that is created now; 1 or 3.

    Raises:
        StreamAbsentError: There is no such stream, and `create` is False.
        InterfaceError: The login was refused, or the stream's configuration would lose events.
        OperationalError: No server answered within the client's budget.
    """

    gives_foreign: ClassVar[bool] = False
    """Whether messages of others are given, see `Records`."""

    def __init__(
        self,
        client: JetStreamClient,
        stream: str,
        *,
        id_type: IdType = "uuid",
        create: bool = False,
        replicas: int = 1,
    ) -> None:
        self._records = Records(stream, id_type, gives_foreign=self.gives_foreign)
        self._client, self._stream = client, stream

        async def find() -> tuple[str, int]:
            info = await open_stream(client, stream, create=create, replicas=replicas)
            return info.identity, info.config.num_replicas

        self._identity, self._replicas = client.call(find)
        self._heads = HeadCache(HEADS)
        self._watcher = LogWatcher(client, stream)

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self._stream

    @property
    def identity(self) -> str:
        """The identity of the stream, different for another one of the same name: a random id and the time of its creation."""
        return self._identity

    def state(self) -> StreamState:
        """Return the state of the stream, from its leader."""
        return self._client.call(self._state)

    def last_position(self) -> int:
        """The position of the newest message that was ever stored, 0 when there was none."""
        return self.state().last

    def destroy(self) -> None:
        """Delete the stream with all it holds, for tests."""
        self._client.call(delete_stream, self._client, self._stream)
        self._heads.clear()
        self._watcher.forget()

    def close(self) -> None:
        """Wake everybody who waits; they learn that there is nothing new. The client stays open."""
        self._watcher.close()

    async def _state(self) -> StreamState:
        return (await stream_info(self._client, self._stream)).state

    async def _insert(self, messages: Sequence[Message]) -> int:
        """
        Append after what is the last message of each subject now, if all versions are above it. The last position.

        Repeats when somebody else was faster, until the versions tell that they came too late.
        """
        deadline = self._client.deadline()
        while True:
            first = await self._expect_heads(messages, deadline)
            try:
                ack = await append_messages(self._client, self._stream, messages, deadline, replicas=self._replicas)
            except (SlotTakenError, SlotEmptyError) as error:
                for subject in first:
                    self._heads.drop(subject)
                # A taken slot is progress of others, and most often the versions now tell that we came too late.
                if deadline.left_s == 0 or (isinstance(error, SlotEmptyError) and not await deadline.pause()):
                    msg = f"the originators in {self._stream} kept changing: {error}"
                    raise OperationalError(msg) from error
                continue
            except BaseException:
                # What was stored is unknown, or will be in a moment.
                for subject in first:
                    self._heads.drop(subject)
                raise
            self._remember(messages, ack)
            return ack.last

    async def _expect_heads(self, messages: Sequence[Message], deadline: Deadline) -> list[str]:
        expected: dict[str, None] = {}
        for message in messages:
            message.expected = None
            if message.subject in expected:
                continue
            expected[message.subject] = None
            version = int(message.headers[VERSION])
            head = self._heads.get(message.subject)
            if head is None or head.version >= version:
                head = await self._read_head(message.subject, deadline)
            if head.version >= version:
                self._heads.drop(message.subject)
                msg = f"{message.subject} is at {head.version} already, so {version} cannot be added"
                raise IntegrityError(msg)
            message.expected = head.position
        return list(expected)

    async def _read_head(self, subject: str, deadline: Deadline) -> Head:
        last = await last_on_subject(self._client, self._stream, subject, deadline)
        head = NOTHING if last is None else Head(event_version(last), last.position)
        self._heads.put(subject, head)
        return head

    async def _insert_at(
        self, messages: Sequence[Message], position: int, deadline: Deadline, *, is_uncertain: bool
    ) -> int:
        messages[0].expected = position
        try:
            ack = await append_messages(
                self._client, self._stream, messages, deadline, replicas=self._replicas, is_uncertain=is_uncertain
            )
        except SlotTakenError as error:
            self._heads.drop(messages[0].subject)
            raise conflict(error) from error
        except SlotEmptyError as error:
            raise damaged(error) from error
        self._remember(messages, ack)
        return ack.last

    def _remember(self, messages: Sequence[Message], ack: Ack) -> None:
        self._watcher.advance(ack.last)
        first = ack.last - len(messages) + 1
        for index, message in enumerate(messages):
            if ack.is_duplicate:
                # The position is an old one, and others may have followed.
                self._heads.drop(message.subject)
            else:
                self._heads.put(message.subject, Head(int(message.headers[VERSION]), first + index))
