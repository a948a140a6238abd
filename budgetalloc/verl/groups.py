"""The groups of a step that a trainer generates one by one, and extends before all have ended."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import UnsupportedError
from budgetalloc.training.session import Session


class Groups:
    """The groups of a session's step: rollouts of a prompt that are generated together, each with a
    key of the trainer.

    While groups are generated, the session decides about those that have ended. Afterwards
    `in_whole_rounds` tells it everything again, round by round. Records and beliefs then do not
    depend on which groups ended first.

    Args:
        session: Its step has begun, and was asked for its first request.

    >>> import budgetalloc as ba
    >>> session = Session(ba.policies.growing(ba.uniform(), most=4), ["reward"], success=1.0,
    ...     floor=0)
    >>> session.begin(["a", "b"], rollouts=8, group=4)
    >>> session.request()
    ['a', 'a', 'b', 'b']
    >>> groups, rewards = Groups(session), {"1": [0, 0], "2": [0, 1], "3": [1, 0]}
    >>> groups.add({"1": "a", "2": "b"}, [2, 2])
    >>> groups.early  # a group may be extended before the others have ended
    True
    >>> session.observe(["a", "a"], rewards["1"], lengths_R=[5, 7])
    >>> groups.request(["1"])
    ['a', 'a']
    >>> groups.add({"3": "a"}, [2])
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.running: dict[str, Id] = {}
        """The prompt of each group that has not ended, by its key."""
        self.prompts: dict[str, Id] = {}
        """The prompt of each group of the step, by its key."""
        self._of: dict[Id, list[list[str]]] = {}  # the groups of each request of a prompt
        self._sizes: dict[str, int] = {}

    @property
    def early(self) -> bool:
        """Whether `request` may be called as soon as any group has ended; otherwise, when all
        have."""
        return self.session.policy.needs.by_group and self.session.scoring.settled

    def add(self, prompts: Mapping[str, Id], sizes: Collection[int]) -> None:
        """Adds groups of one request: the prompt of each by its key, and its number of rollouts."""
        new: dict[Id, list[str]] = {}
        for (key, name), size in zip(prompts.items(), sizes, strict=True):
            self.prompts[key] = self.running[key] = name
            self._sizes[key] = size
            new.setdefault(name, []).append(key)
        for name, keys in new.items():
            self._of.setdefault(name, []).append(keys)

    def requests(self) -> dict[Id, int]:
        """The number of requests of each prompt so far."""
        return {name: len(keys) for name, keys in self._of.items()}

    def request(self, ended: Collection[str]) -> list[Id]:
        """The prompts of the rollouts to generate next, after the rollouts of these groups have
        been observed."""
        for key in ended:
            del self.running[key]
        return self.session.request(set(self.running.values()))

    def in_whole_rounds(self) -> Iterator[list[str]]:
        """Starts the session's step again, and for each of its rounds yields the groups whose
        rollouts to observe.

        Raises:
            UnsupportedError: the policy's decision depends on which groups ended first.
        """
        self.session.restart()
        left = {name: iter(keys) for name, keys in self._of.items()}
        while ids_R := self.session.request():
            wanted, keys = Counter(ids_R), list[str]()
            for name, count in wanted.items():
                own = next(left.get(name, iter(())), [])
                if sum(self._sizes[key] for key in own) != count:
                    raise UnsupportedError(
                        f"{self.session.policy} has needs.by_group=True, and decided otherwise "
                        f"about {name!r} when all groups had ended: its counts must not depend on "
                        "which groups end first. Build it with by_group=False, or mend its rule."
                    )
                keys += own
            yield keys
