"""The findings of a diagnosis."""

from typing import Literal

from chatledger.domain.wire import Value

from ...log.nats_server.binary import ServerBinary

Severity = Literal["error", "warning", "note"]


class Finding(Value, frozen=True, kw_only=True):
    """
    One thing that was found.

    Args:
        severity: `error`: data are lost or damaged, or the ledger does not open; `warning`: they may be soon; `note`: nothing
            has to be done.
        kind: A stable name for programs, e.g. `chain-broken`.
        where: A file, a position, or the id of a chat.
        what: What is so.
        remedy: What to do.
    """

    severity: Severity
    kind: str
    where: str
    what: str
    remedy: str


class Diagnosis(Value, frozen=True, kw_only=True):
    """
    The findings at a location.

    Args:
        location: Where it was looked, without secrets.
        findings: The worst first.
        event_count: How many events could be read.
        stream_count: How many chats, threads of agents and states of graphs they are of, deleted ones included.
        thread_count, state_count: How many of these are threads and states.
        position: The highest log position known to have been assigned.
        server: Of a directory: the nats-server that has it open, or would be started for it. None elsewhere, and where it is not
            known.
    """

    location: str
    findings: tuple[Finding, ...]
    event_count: int = 0
    stream_count: int = 0
    position: int = 0
    thread_count: int = 0
    state_count: int = 0
    server: ServerBinary | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether there is nothing to do: no error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)


class Findings:
    """A list that grows."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []

    def add(self, severity: Severity, kind: str, where: object, what: str, remedy: str) -> None:
        """Note something."""
        self._findings.append(Finding(severity=severity, kind=kind, where=str(where), what=what, remedy=remedy))

    def sorted(self) -> tuple[Finding, ...]:
        """All, the worst first."""
        order = ("error", "warning", "note")
        return tuple(sorted(self._findings, key=lambda finding: order.index(finding.severity)))
