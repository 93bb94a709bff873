"""One request in flight to a simulated server, in virtual time: pending, answered or timed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from llama_watchdog.core.observation import Outcome
from llama_watchdog.simulator.model import ServerModel

Answer = TypeVar("Answer")
ANSWER_SECONDS = 0.001


class Reply(NamedTuple, Generic[Answer]):
    """How the question went: the answer only with OK; `seconds`: its age, or how long it took."""

    outcome: Outcome
    seconds: float
    answer: Answer | None = None


class Question(Generic[Answer]):
    """One endpoint's only request in flight.

    `get(now, asked)` gives the model's answer, or `None` while it hangs. `refusal`: what the server says to
    this question in place of any answer, such as UNAUTHORIZED.
    """

    def __init__(
        self,
        model: ServerModel,
        get: Callable[[float, float], Answer | None],
        timeout: float,
        refusal: Outcome | None = None,
    ) -> None:
        self._model = model
        self._get = get
        self._timeout = timeout
        self._refusal = refusal
        self._asked: float | None = None
        self._incarnation = 0
        self._reply: Reply[Answer] | None = None

    @property
    def deadline(self) -> float | None:
        """When it times out; `None` where nothing is in flight, or it is settled already."""
        return None if self._asked is None or self._reply else self._asked + self._timeout

    @property
    def waits(self) -> bool:
        """Whether it is in flight without an answer."""
        return self.deadline is not None

    def ask(self, now: float) -> None:
        """Put the question, unless the last one is still in flight."""
        if self._asked is None:
            self._asked, self._incarnation = now, self._model.incarnation
            self.look(now)

    def look(self, now: float) -> None:
        """See whether there is an answer by now, or none in time."""
        if self._asked is None or self._reply:
            return
        seconds = now - self._asked
        outcome, answer = self._outcome(now, self._asked)
        if outcome is Outcome.PENDING and seconds >= self._timeout:
            outcome = Outcome.TIMEOUT
        if outcome is not Outcome.PENDING:
            self._reply = Reply(outcome, seconds or ANSWER_SECONDS, answer)

    def report(self, now: float) -> Reply[Answer] | None:
        """What a poll says of it; `None` where nothing was asked. What is settled is said once."""
        if self._asked is None:
            return None
        if self._reply is None:
            return Reply(Outcome.PENDING, now - self._asked)
        reply, self._reply, self._asked = self._reply, None, None
        return reply

    def _outcome(self, now: float, asked: float) -> tuple[Outcome, Answer | None]:
        model = self._model
        model.advance(now)
        if model.incarnation != self._incarnation:
            return Outcome.ERROR, None
        if not model.listening:
            # A connection that was open already outlives the port, and is reset by the end of the process.
            in_flight = Outcome.PENDING if model.alive else Outcome.ERROR
            return (in_flight if now > asked else Outcome.REFUSED), None
        if not model.halted:
            if model.loading:
                return Outcome.LOADING, None
            if self._refusal:
                return self._refusal, None
            if (answer := self._get(now, asked)) is not None:
                return Outcome.OK, answer
        return Outcome.PENDING, None
