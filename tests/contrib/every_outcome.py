"""Every outcome of a computation that draws, for exact expectations."""


class Tape:
    """Answers draws from a list, and then with 0; `p` is the probability of its draws so far."""

    def __init__(self, given):
        self.given, self.taken, self.sizes, self.p = given, [], [], 1.0

    def draw(self, chances):
        at = self.given[len(self.taken)] if len(self.taken) < len(self.given) else 0
        self.taken.append(at)
        self.sizes.append(len(chances))
        self.p *= chances[at]
        return at


def every_outcome(compute):
    """`compute(tape)` in every outcome of its draws, in lexicographic order, with its probability."""
    given = []
    while given is not None:
        tape = Tape(given)
        made = compute(tape)
        yield tape.p, made
        taken = tape.taken
        while taken and taken[-1] + 1 == tape.sizes[len(taken) - 1]:
            taken.pop()
        given = [*taken[:-1], taken[-1] + 1] if taken else None
