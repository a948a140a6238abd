"""Steps of a policy whose rollouts a server generates at the same time."""

import logging
from dataclasses import dataclass, field

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import InputError
from budgetalloc.training.admission import Admission, Plan
from budgetalloc.training.session import Session
from budgetalloc.trl.experimental.completions import Server
from budgetalloc.trl.experimental.queue_samples import lengths
from budgetalloc.trl.experimental.sampling import CompletionSampler, SampledCompletion

__all__ = ["Flight", "Flights"]

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Flight(Plan[SampledCompletion]):
    """A step of the policy whose rollouts are being generated.

    Args:
        number: The number of the step.
        versions: The oldest model version of each prompt's group.
        completions: The completions of the rounds that were observed.
        error: Why a rollout was lost, if one was.
    """

    number: int = 0
    versions: dict[Id, int] = field(default_factory=dict)
    completions: list[SampledCompletion] = field(default_factory=list)
    error: Exception | None = None
    rounds: int = 0


class Flights:
    """The steps that are being generated, in one thread. They are observed and learned from in
    their order.

    A rollout whose request fails is lost. The step is observed without it, so beliefs learn nothing
    from it. Lost rollouts are charged at their expected cost (`Costs.lost`).

    Args:
        session: Runs the policy.
        admission: The steps that have begun. The caller admits them.
        sampler: Makes requests and scores their completions.
        server: Completes the requests.
        seed: Seeds the completions.
    """

    def __init__(
        self,
        session: Session,
        admission: Admission[Flight],
        sampler: CompletionSampler,
        server: Server,
        seed: int,
    ) -> None:
        self.session, self.admission, self.sampler, self.server, self.seed = (
            session,
            admission,
            sampler,
            server,
            seed,
        )
        self._warned = False

    def begin(self, rollouts: int, version: int) -> None:
        """Sends the first requests of the session's current step, of which `rollouts` are trained
        on."""
        flight = Flight(rollouts, number=self.session.step.number)
        if not self._request(flight, version):
            raise InputError(
                f"{self.session.policy} requested no rollouts: a step must spend its budget."
            )
        self.admission.begin(flight)

    def _request(self, flight: Flight, version: int) -> bool:
        """Sends the step's next requests, and suspends it; False if the policy wants no more."""
        ids_R = self.session.request()
        if not ids_R:
            return False
        flight.versions = dict.fromkeys(ids_R, version) | flight.versions
        for part in self.session.parts:
            if part.clock is not None:
                part.clock.go()
        requests = self.sampler.requests(ids_R, [self.seed, flight.number, flight.rounds])
        for number, request in zip(flight.ask(len(requests)), requests, strict=True):
            self.server.submit((flight, number, request), request.prompt_ids, request.seed)
        flight.rounds += 1
        self.session.suspend()
        return True

    def wait(self, timeout: float) -> None:
        """Takes a completion from the server, if one comes within `timeout` seconds."""
        ended = self.server.answer(timeout)
        if ended is None:
            return
        (flight, number, request), answer = ended
        if isinstance(answer, Exception):
            flight.error = answer
            if not self._warned:
                self._warned = True
                logger.warning(
                    "A rollout of prompt %r is lost (%s), and its group is trained without it. "
                    "budgetalloc/lost counts "
                    "such rollouts.",
                    *(request.prompt, answer),
                )
        flight.take(
            number, None if isinstance(answer, Exception) else self.sampler.sampled(request, answer)
        )
        self.sampler.on_progress()

    def complete(self, version: int) -> Flight | None:
        """The oldest step, if all its rollouts have come or are lost: it is then the session's
        current step, and waits for its end. None otherwise. A step that wants another round gets
        it.

        Raises:
            Exception: the error of the last request, if none of the step's rollouts came.
        """
        flight = self.admission.next()
        if flight is None:
            return None
        for part in self.session.parts:  # what follows is not the server's time
            if part.clock is not None:
                part.clock.stop()
        self.session.resume()
        came = flight.came()
        flight.completions += came
        if flight.error is not None and not flight.completions:  # the server is gone
            raise flight.error
        scores_RF = self.sampler.score(came)
        lengths_R, prompts_R = lengths(came)
        ids_R = [each.request.prompt for each in came]
        self.session.observe(ids_R, scores_RF, lengths_R, prompt_lengths_R=prompts_R)
        return None if self._request(flight, version) else flight
