"""Every allocation method, in one table: what it decides, by which rule, whose it is, and what it asks of a trainer.

A new method is one function and one row here; the row brings the tests that every policy must pass.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.budget import Budget
from budgetalloc.policies import (
    Needs,
    Policy,
    categories,
    chosen,
    compose,
    explorable,
    exposure,
    focus,
    gates,
    generate_more,
    hardness,
    planner,
    selection,
    staged,
    valued,
    variance,
)
from budgetalloc.policies.adaptive import adaptive, sampled

ACROSS, WHICH, ROUNDS, TRAIN = (
    "rollouts across prompts",
    "which prompts",
    "rounds within a step",
    "which rollouts to train on",
)
DECIDES = (ACROSS, WHICH, ROUNDS, TRAIN)
OURS = "ours"


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Args:
        name: Of the function.
        build: The function, called with `seed=`.
        decides: One of `DECIDES`, the main one.
        formula: The rule in one line.
        source: Of the rule, or "ours".
        starves: The rule may leave a prompt without rollouts for ever.
        note: What a user should know.

    >>> from budgetalloc import policies
    >>> Method("vade", policies.vade, decides="which prompts", formula="p (1-p)^2 of a draw", source="arXiv").needs()
    {'candidates': 'all', 'baseline': 'group'}
    """

    name: str
    build: Callable[..., Policy]
    decides: str
    formula: str
    source: str
    starves: bool = False
    note: str = ""

    def needs(self) -> dict[str, Any]:
        """What it asks of a trainer beyond plain GRPO: the entries of `Needs` that differ, and "rounds"."""
        plain = asdict(Needs(keep_batch=True))
        found = {k: v for k, v in asdict(self.build(seed=0).needs).items() if v != plain[k] and k != "keep_batch"}
        return found | ({"rounds": True} if self.in_rounds() else {})

    def asks(self) -> str:
        """The same in words, such as "candidates all, baseline posterior"."""
        words = [name if value is True else f"{name} {value}" for name, value in self.needs().items()]
        return ", ".join(words) or "nothing"

    def in_rounds(self) -> bool:
        """Whether it decides again within a step, once the first rewards are in: its trainer must generate again."""
        ids, requests = list(range(16)), 0
        step = self.build(seed=0).begin(ids, Budget(rollouts=256, floor=0, min_group=1))
        while (counts_P := step.request()).any():
            requests += 1
            ids_R = [x for x, count in zip(ids, counts_P.tolist(), strict=True) for _ in range(count)]
            step.observe(ids_R, [0.0] * len(ids_R))  # whoever decides in rounds goes on where all fail
        return requests > 1


def _category(prompt: Id) -> str:
    """Stands for the user's own categories where the table is tested and measured: the last letter of the id."""
    return str(prompt)[-1]


METHODS: tuple[Method, ...] = (
    Method(
        "uniform",
        compose.uniform,
        decides=ACROSS,
        formula="n = budget / prompts",
        source=OURS,
        note="Plain GRPO; attached to a trainer it changes nothing.",
    ),
    Method(
        "knapsack",
        compose.knapsack,
        decides=ACROSS,
        formula="greedy on E[1 - p^n - (1-p)^n] under the belief",
        source=OURS,
        starves=True,
        note="Moves rollouts inside a batch; over a pool it returns to the prompts it knows.",
    ),
    Method(
        "thompson",
        compose.thompson,
        decides=ACROSS,
        formula="greedy on (1 - p^n - (1-p)^n) p (1-p)^2, p a Thompson draw",
        source=OURS,
        note="The value of Knapsack RL (arXiv 2509.25849) at a draw.",
    ),
    Method(
        "sampled",
        sampled,
        decides=ACROSS,
        formula="n drawn in proportion to sqrt(p (1-p)^2), p a Thompson draw",
        source=OURS,
        note="Systematic sampling, in groups of one with the leave-one-out posterior baseline.",
    ),
    Method(
        "adaptive",
        adaptive,
        decides=ACROSS,
        formula="sampled, with the settings that the learning benchmark picked",
        source=OURS,
        note="The recommended policy.",
    ),
    Method(
        "knapsack_rl",
        valued.knapsack_rl,
        decides=ACROSS,
        formula="greedy on (1 - p^n - (1-p)^n) p (1-p)^2, p the mean of the last visit (of the last 16 rewards)",
        source="arXiv 2509.25849",
        note="From summaries and code, the full text was not read. The surplus goes to unsolved prompts first.",
    ),
    Method(
        "coba_rl",
        valued.coba_rl,
        decides=ACROSS,
        formula="greedy on (1 - exp(-n p(1-p) / tau)) Beta(p; a, kappa - a), a = 1 + (kappa - 2) F, F the failure rate",
        source="arXiv 2602.03048",
        note="tau, the window and p as in the released code, without its 20 to 40 % for hard prompts.",
    ),
    Method(
        "cero",
        exposure.cero,
        decides=ACROSS,
        formula="slope of 1 - exp(-4 lambda q z / R) above a learned price, z all rollouts so far, q = E[p(1-p)]",
        source="arXiv 2606.05606",
        note="Each step's budget is spent exactly. lambda, R, rho and the prior are ours. Far beyond R rollouts each, "
        "most go to solved and hopeless prompts.",
    ),
    Method(
        "vip",
        variance.vip,
        decides=ACROSS,
        formula="minimise the sum of E[p(1-p)] / n",
        source="arXiv 2602.01601",
        note="The belief stands for the paper's Gaussian process. With floor=0 a batch is drawn at random first. The "
        "forms dr_grpo and rloo are derived here.",
    ),
    Method(
        "gvm",
        variance.gvm,
        decides=ACROSS,
        formula="n in proportion to G / sqrt(p + alpha / p^(beta - 1)), G the gradient norm",
        source="arXiv 2505.02391",
        note="G = 1 unless norm_of gives it; the posterior mean stands for a pilot. With floor=0 a batch is drawn at "
        "random first.",
    ),
    Method(
        "e3",
        hardness.e3,
        decides=ACROSS,
        formula="G_min + (B - P G_min) k / sum of k, at most G_max; k the rank by cumulative mean reward",
        source="arXiv 2505.18573, Algorithm 1",
        note="The total is exact and a cold prompt gets the default share, unlike in the released code. The bounds "
        "widen by 2 an epoch, to 4 and 12.",
    ),
    Method(
        "dart",
        hardness.dart,
        decides=ACROSS,
        formula="n = 8 if p <= 0.6, else 4",
        source="arXiv 2509.23866",
        note="The paper's formula for the reduction was not found: 4 is ours.",
    ),
    Method(
        "vade",
        selection.vade,
        decides=WHICH,
        formula="a group each to the largest p (1-p)^2, p a Thompson draw",
        source="arXiv 2511.18902",
        note="Discount 0.2, idle 0.999 and groups of 8 are read off a figure.",
    ),
    Method(
        "mopps",
        chosen.mopps,
        decides=WHICH,
        formula="a group each to the smallest (p - 1/2)^2, p a Thompson draw",
        source="arXiv 2507.04632",
        starves=True,
        note="Lambda is ours. Beliefs do not fade while a prompt waits: a solved one is drawn near 1/2 with a chance "
        "that is positive but tiny.",
    ),
    Method(
        "cures",
        selection.cures,
        decides=WHICH,
        formula="drawn by exp(sqrt(p(1-p)) / tau), then n in proportion to sqrt(p(1-p))",
        source="arXiv 2510.01037",
        note="The released code samples uniformly to within 0.5 % and never updates its posterior; this is the paper's "
        "rule.",
    ),
    Method(
        "depo",
        explorable.depo,
        decides=WHICH,
        formula="the share alpha_0 - d e with the largest mean |A| of the last visits, and the share rho least visited",
        source="arXiv 2509.01321",
        note="Without the entropy factor, which needs the trainer; all shares are ours.",
    ),
    Method(
        "greso",
        chosen.greso,
        decides=WHICH,
        formula="skipped with probability 1 - p_e^z after z visits in a row without variance",
        source="arXiv 2506.02177",
        note="Constants from the released code; the least chance to keep a prompt is 1 %.",
    ),
    Method(
        "gate",
        gates.gate,
        decides=WHICH,
        formula="lo < p < hi for a predicted p, by default the posterior mean; others with a small chance",
        source=OURS,
        note="Takes any predictor of success rates.",
    ),
    Method(
        "masa",
        gates.masa,
        decides=WHICH,
        formula="0 < p < 1 for the p that the model predicts",
        source="arXiv 2510.03259",
        note="Without predictions the posterior mean in (0.1, 0.9) stands in, bounds of ours.",
    ),
    Method(
        "pvpo",
        gates.pvpo,
        decides=WHICH,
        formula="dropped at a reference mean of 1, kept between, at 0 kept only with a demonstration",
        source="arXiv 2508.21104",
        note="Groups of 1 and 2 with the posterior baseline. The chance to explore is ours; without it dropped prompts "
        "stay out.",
    ),
    Method(
        "drive",
        focus.drive,
        decides=WHICH,
        formula="phases (keep, steps, n): the share `keep` with the lowest E[p], n rollouts each",
        source="arXiv 2511.06307",
        starves=True,
        note="72, 50 and 25 of 175 prompts with n = 64 (the paper also says 80). The rest is left out on purpose.",
    ),
    Method(
        "brorl",
        focus.brorl,
        decides=WHICH,
        formula="budget / n prompts at random, n = 512 each",
        source="arXiv 2510.01180",
        note="Breadth against depth at a fixed budget; `breadth_depth` and `lr_scale` are functions of their own.",
    ),
    Method(
        "dump",
        partial(categories.dump, domain_of=_category),
        decides=WHICH,
        formula="category by softmax((mean |A| of its window + sqrt(2 ln(n + 1) / (n_c + 1))) / temperature)",
        source="arXiv 2504.09710",
        note="Needs domain_of=. Categories without signal are met ever more rarely, but never with probability 0.",
    ),
    Method(
        "sec",
        partial(categories.sec, domain_of=_category),
        decides=WHICH,
        formula="category by softmax(Q / tau), Q <- alpha mean |A| + (1 - alpha) Q",
        source="arXiv 2505.14970",
        note="Needs domain_of=.",
    ),
    Method(
        "ar3po",
        staged.ar3po,
        decides=ROUNDS,
        formula="k rollouts a round until the first success, S rounds at most, S k = 8",
        source="arXiv 2509.25808",
        note="The group mean is biased, in two rounds by (1-p)^k p / 2: use a baseline from before the step. Responses "
        "are not reused here.",
    ),
    Method(
        "pilot_commit",
        staged.pilot_commit,
        decides=ROUNDS,
        formula="a pilot of 4, then up to 16 for the largest r (1-r) of the pilots' means r",
        source="arXiv 2605.26606",
        note="The released code commits at random to means in [0.125, 0.75], from a buffer, and leaves solved prompts "
        "out for an epoch; neither is part of it.",
    ),
    Method(
        "hora",
        exposure.hora,
        decides=ROUNDS,
        formula="a pilot, then greedy on 1 - E[(1-p)^m] under Beta(1 + s, 1 + f)",
        source="arXiv 2605.07114",
        note="The size of the pilot is ours. What came before the step does not count.",
    ),
    Method(
        "xrpo",
        planner.xrpo,
        decides=ROUNDS,
        formula="after a base of 4, to the largest h(n) - h(n+1) + lambda sqrt(log(1+T) / n), h = t s / sqrt(n)",
        source="arXiv 2510.06672",
        note="From transcriptions, which disagree on the bonus and on T: both are arguments. lambda, the base and the "
        "sizes of rounds are ours.",
    ),
    Method(
        "dars",
        hardness.dars,
        decides=ROUNDS,
        formula="after a pilot of N with share a < 1/2 of successes, ET: n = N / (4 a (1-a)), HW: n = N / (2 a)",
        source="arXiv 2508.13755",
        note="As in its code; extras are scaled to the budget. The group mean is biased, a baseline from before the "
        "step is not.",
    ),
    Method(
        "speed",
        gates.speed,
        decides=ROUNDS,
        formula="4 rollouts screen a prompt, 20 more if 0 < mean < 1",
        source="arXiv 2506.09016",
        note="Screening draws the group mean towards 1/2. A step may take a dozen rounds, the last ones small.",
    ),
    Method(
        "reinforce_ada",
        staged.reinforce_ada,
        decides=ROUNDS,
        formula="rounds of n until n/2 successes and n/2 failures; n rows are trained on",
        source="arXiv 2510.04996",
        note="quota='positive' stops at one success. The estimation variant is not part of it.",
    ),
    Method(
        "dapo",
        staged.dapo,
        decides=ROUNDS,
        formula="whole batches of groups of new prompts until the mixed groups fill a batch",
        source="arXiv 2503.14476",
        note="The limit of generated batches is ours.",
    ),
    Method(
        "keep_mixed",
        generate_more.keep_mixed,
        decides=TRAIN,
        formula="groups of unequal rewards first",
        source="arXiv 2503.14476",
        note="The filter of dapo in one round, without resampling. Uniform counts.",
    ),
    Method(
        "top_p",
        generate_more.top_p,
        decides=TRAIN,
        formula="the fewest groups whose reward variances add up to a share p of all",
        source="arXiv 2604.06268",
        note="Filled up from the groups of least variance. Uniform counts.",
    ),
    Method(
        "pods",
        generate_more.pods,
        decides=TRAIN,
        formula="of each group the m rewards of largest variance: the j lowest and the m - j highest",
        source="arXiv 2504.13818",
        note="Advantages are taken over all that was generated, in the released code over the rows kept. "
        "Uniform counts.",
    ),
    Method(
        "cppo",
        generate_more.cppo,
        decides=TRAIN,
        formula="of each group the rows of largest |(r - mean) / std|",
        source="arXiv 2503.22342",
        note="Uniform counts.",
    ),
    Method(
        "d3s",
        generate_more.d3s,
        decides=TRAIN,
        formula="of the whole batch the rows of largest variance of (r - mean) / std of their group",
        source="arXiv 2509.22115",
        note="Without the token level; the schedule is `downselect.d3s_schedule`. Uniform counts.",
    ),
    Method(
        "shuffle_r1",
        generate_more.shuffle_r1,
        decides=TRAIN,
        formula="pairs (k-th largest, k-th smallest advantage), then 8 draws without replacement by |A1| + |A2|",
        source="arXiv 2508.05612",
        note="A rollout may be trained on several times. Too few positive weights do not fail as in the released code. "
        "Uniform counts.",
    ),
    Method(
        "roc",
        generate_more.roc,
        decides=TRAIN,
        formula="round(m |positive| / n) successes of lowest penalty and the first failures, at least 2 of each kind",
        source="arXiv 2508.20722",
        note="The released rule; choose='drawn' draws as the paper is quoted. Uniform counts.",
    ),
)


def published() -> int:
    """How many of the methods are other people's published rules.

    >>> published() + sum(method.source == "ours" for method in METHODS) == len(METHODS)
    True
    """
    return sum(method.source != OURS for method in METHODS)
