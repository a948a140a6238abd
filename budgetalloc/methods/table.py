"""The table of all allocation methods: what each decides, its rule, its source and what it needs
from a trainer.

To add a method, export its function from `budgetalloc.policies` and add a row to `_TABLE`. The
tests of all policies then cover it. The published methods of a section are in the folder of
`published/` with the section's name.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from inspect import signature
from typing import Any, Literal, get_args, get_origin

from budgetalloc.beliefs.ids import Id
from budgetalloc.budget import Budget
from budgetalloc.errors import InputError, check_choice, nearest, shown
from budgetalloc.methods.a_star_po import a_star_po
from budgetalloc.methods.adarft import adarft
from budgetalloc.methods.aero import aero
from budgetalloc.methods.ar3po import ar3po
from budgetalloc.methods.bots import bots
from budgetalloc.methods.brorl import brorl
from budgetalloc.methods.categories import dump, sec
from budgetalloc.methods.cero import cero
from budgetalloc.methods.coba_rl import coba_rl
from budgetalloc.methods.cppo import cppo
from budgetalloc.methods.cures import cures
from budgetalloc.methods.dapo import dapo
from budgetalloc.methods.dars import dars
from budgetalloc.methods.dart import dart
from budgetalloc.methods.depo import depo
from budgetalloc.methods.drive import drive
from budgetalloc.methods.e3 import e3
from budgetalloc.methods.ebpo import ebpo
from budgetalloc.methods.gates import gate
from budgetalloc.methods.greso import greso
from budgetalloc.methods.gvm import gvm
from budgetalloc.methods.hora import hora
from budgetalloc.methods.knapsack_rl import knapsack_rl
from budgetalloc.methods.masa import masa
from budgetalloc.methods.mopps import mopps
from budgetalloc.methods.pac import pac
from budgetalloc.methods.pilot_commit import pilot_commit
from budgetalloc.methods.pods import d3s, pods
from budgetalloc.methods.prime_pools import prime_pools
from budgetalloc.methods.pvpo import pvpo
from budgetalloc.methods.reinforce_ada import reinforce_ada
from budgetalloc.methods.reinforce_pp import reinforce_pp
from budgetalloc.methods.roc import roc
from budgetalloc.methods.sgpo import sgpo
from budgetalloc.methods.shuffle_r1 import shuffle_r1
from budgetalloc.methods.speed import speed
from budgetalloc.methods.spo import spo, spo_pp
from budgetalloc.methods.v05 import v05
from budgetalloc.methods.vade import vade
from budgetalloc.methods.vip import vip
from budgetalloc.methods.whole_groups import keep_mixed, top_p
from budgetalloc.methods.xrpo import xrpo
from budgetalloc.policies.adaptive import adaptive, sampled
from budgetalloc.policies.composition import knapsack, thompson, uniform
from budgetalloc.policies.interface import Needs
from budgetalloc.policies.policy import Policy
from budgetalloc.solvers.exact import highs, ortools
from budgetalloc.solvers.greedy import greedy
from budgetalloc.values import hit, mixed_group, success_gain, variance

__all__ = [
    "ACROSS",
    "BASELINE",
    "CHECKED",
    "CODE",
    "DECIDES",
    "DESCRIBED",
    "FORMULAS",
    "MEANINGS",
    "METHODS",
    "NAMED",
    "OURS",
    "ROLLOUTS",
    "ROUNDS",
    "SECTIONS",
    "WHICH",
    "Checked",
    "Decides",
    "Method",
    "method_of",
    "published",
]

Decides = Literal[
    "across prompts", "which prompts", "in rounds", "which rollouts", "which baseline"
]
ACROSS, WHICH, ROUNDS, ROLLOUTS, BASELINE = DECIDES = get_args(Decides)
SECTIONS: dict[Decides, str] = {
    ACROSS: "How many rollouts each prompt of a batch gets.",
    WHICH: "Which prompts get rollouts.",
    ROUNDS: "How a step continues after the rewards of its first rollouts: these methods decide in rounds.",
    ROLLOUTS: "Which of the generated rollouts are trained on; all prompts get equal counts.",
    BASELINE: "Which baseline the rewards are compared with; all prompts get equal counts.",
}
"""The main decision of a method: the sections of the table, and the folders of `published/`."""

Checked = Literal["ours", "released code", "paper's formulas", "a description"]
OURS, CODE, FORMULAS, DESCRIBED = CHECKED = get_args(Checked)
MEANINGS: dict[Checked, str] = {
    OURS: "budgetalloc's own rule; no published method to compare it with.",
    CODE: "compared with the code that the authors released; the docstring names the differences.",
    FORMULAS: "follows the formulas that the paper prints; no code was compared.",
    DESCRIBED: "follows an abstract, a figure or a summary by others; a formula or a constant may be guessed.",
}
"""What a method was checked against, the most reliable first."""

NAMED: dict[str, dict[str, Callable[..., Any]]] = {
    "value": {
        "mixed_group": mixed_group,
        "hit": hit,
        "variance": variance,
        "success_gain": success_gain,
    },
    "solver": {"greedy": greedy, "highs": highs, "ortools": ortools},
}
"""The functions that a text can name, such as a file of settings, by the argument that takes them.
"""


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Args:
        name: Name of the function.
        build: The function, called with `seed=`.
        decides: The main decision: a section of the table.
        formula: The rule in one line.
        source: The paper that the rule is from, or "ours".
        checked: What the implementation was checked against (`MEANINGS`).
        starves: Whether the rule may never roll out some prompts again.
        of_rates: Whether the rule is about pass rates. It then uses only the mean of graded
            success.
        note: A remark for users.

    >>> from budgetalloc import policies
    >>> Method("vade", methods.vade, decides="which prompts", formula="p (1-p)^2 of a draw", source="arXiv").needs()
    {'candidates': 'all', 'baseline': 'group'}
    """

    name: str
    build: Callable[..., Policy]
    decides: Decides
    formula: str
    source: str
    checked: Checked = OURS
    starves: bool = False
    of_rates: bool = False
    note: str = ""

    def needs(self) -> dict[str, Any]:
        """The method's needs beyond plain GRPO: the entries of `Needs` that differ, and
        "rounds"."""
        plain = asdict(Needs(keep_batch=True))
        needs = {
            k: v
            for k, v in asdict(self.build(seed=0).needs).items()
            if v != plain[k] and k not in ("keep_batch", "costs", "ahead", "by_group", "part")
        }
        return needs | ({"rounds": True} if self.in_rounds() else {})

    def asks(self) -> str:
        """The needs as text, such as "candidates all, baseline posterior"."""
        words = [
            name if value is True else f"{name} {value}" for name, value in self.needs().items()
        ]
        return ", ".join(words) or "nothing"

    def in_rounds(self) -> bool:
        """Whether a step of the method may generate again, after its first rewards."""
        ids, requests = list(range(16)), 0
        step = self.build(seed=0).begin(ids, Budget(rollouts=256, floor=0, min_group=1))
        while (counts_P := step.request()).any():
            requests += 1
            ids_R = [
                x for x, count in zip(ids, counts_P.tolist(), strict=True) for _ in range(count)
            ]
            step.observe(ids_R, [0.0] * len(ids_R))  # methods in rounds continue after failures
        return requests > 1

    def functions(self) -> dict[str, Any]:
        """The arguments that take functions without a name in `NAMED`, with their defaults.

        >>> method_of("gate").functions()
        {'predict': None}
        """
        return {
            key: argument.default
            for key, argument in signature(self.build).parameters.items()
            if key not in NAMED
            and any(
                get_origin(kind) is Callable
                for kind in (argument.annotation, *get_args(argument.annotation))
            )
        }

    def defaults(self) -> dict[str, Any]:
        """All other arguments, with their defaults: plain values, and functions of `NAMED` by their
        names.

        >>> method_of("vade").defaults()
        {'group': 8, 'discount': 0.2, 'idle': 0.999, 'seed': 0}
        """
        functions, arguments = self.functions(), signature(self.build).parameters
        defaults = {
            key: argument.default for key, argument in arguments.items() if key not in functions
        }
        return defaults | {
            key: defaults[key].__name__ for key in NAMED if defaults.get(key) is not None
        }

    def named(self, options: Mapping[str, Any]) -> Policy:
        """The policy with these arguments, the functions of `NAMED` given by their names.

        >>> method_of("knapsack").named({"value": "hit", "seed": 3})
        knapsack(value=hit, belief='posterior', prior=(0.5, 0.5), discount=0.9, idle=1.0, seed=3)

        Raises:
            InputError: an argument that the method does not have.
        """
        arguments = signature(self.build).parameters
        if unknown := [key for key in options if key not in arguments]:
            raise InputError(
                f"{self.name}({unknown[0]}=) is unknown{nearest(unknown[0], arguments)} Use one of "
                f"{', '.join(arguments)}."
            )
        functions = {}
        for key, by_name in NAMED.items():
            if options.get(key) is not None:
                check_choice(key, options[key], tuple(by_name))
                functions[key] = by_name[options[key]]
        return self.build(**{**options, **functions})


_TABLE: dict[tuple[Decides, Checked], dict[Callable[..., Policy], tuple[str, str, str]]] = {
    (ACROSS, OURS): {
        uniform: (
            "n = budget / prompts",
            OURS,
            "Plain GRPO; attached to a trainer, it does not change the training.",
        ),
        knapsack: (
            "greedy on E[1 - p^n - (1-p)^n] under the belief",
            OURS,
            "Moves rollouts inside a batch; over a pool it keeps choosing prompts that it has "
            "seen.",
        ),
        thompson: (
            "greedy on (1 - p^n - (1-p)^n) p (1-p)^2, p a Thompson draw",
            OURS,
            "The value of Knapsack RL (arXiv 2509.25849) at a draw.",
        ),
        sampled: (
            "n drawn in proportion to sqrt(p (1-p)^2), p a Thompson draw",
            OURS,
            "Systematic sampling of single rollouts, with the leave-one-out posterior baseline.",
        ),
        adaptive: (
            "sampled; a prompt without history gets a group of 2, or of up to 4 in a large pool",
            OURS,
            "The recommended policy. With rounds=3, prompts whose rollouts all failed are "
            "continued within the step.",
        ),
    },
    (ACROSS, CODE): {
        knapsack_rl: (
            "greedy on (1 - p^n - (1-p)^n) p (1-p)^2, p the mean of the last visit (of the last 16 "
            "rewards)",
            "arXiv 2509.25849",
            "From summaries and the released code; the full text was not read. The surplus goes to "
            "unsolved prompts.",
        ),
        coba_rl: (
            "greedy on (1 - exp(-n p(1-p) / tau)) Beta(p; a, kappa - a), a = 1 + (kappa - 2) F, F "
            "the failure rate",
            "arXiv 2602.03048",
            "tau, the window and p are those of the released code, without its 20 to 40 % for hard "
            "prompts.",
        ),
        gvm: (
            "n in proportion to G / sqrt(p + alpha / p^(beta - 1)), G the gradient norm",
            "arXiv 2505.02391",
            "G = 1 unless norm_of= is given. The posterior mean replaces the pilot. floor=0 draws "
            "a batch first.",
        ),
        e3: (
            "G_min + (B - P G_min) k / sum of k, at most G_max; k the rank by cumulative mean "
            "reward",
            "arXiv 2505.18573, Algorithm 1",
            "The total is exact; a cold prompt gets the default share. The bounds widen by 2 an "
            "epoch, to 4 and 12.",
        ),
    },
    (ACROSS, FORMULAS): {
        cero: (
            "slope of 1 - exp(-4 lambda q z / R) above a learned price, z all rollouts so far, q = "
            "E[p(1-p)]",
            "arXiv 2606.05606",
            "Each step's budget is spent exactly. lambda, R, rho and the prior are our defaults. "
            "Far beyond R "
            "rollouts for each prompt, most rollouts go to solved and hopeless prompts.",
        ),
        vip: (
            "minimise the sum of E[p(1-p)] / n",
            "arXiv 2602.01601",
            "The belief replaces the paper's Gaussian process. The forms dr_grpo and rloo are "
            "derived here.",
        ),
    },
    (ACROSS, DESCRIBED): {
        dart: (
            "n = 8 if p <= 0.6, else 4",
            "arXiv 2509.23866",
            "The formula for the reduction was not found: 4 is our default. The released code has "
            "no such rule.",
        ),
    },
    (WHICH, OURS): {
        gate: (
            "lo < p < hi for a predicted p, by default the posterior mean; others with a small "
            "chance",
            OURS,
            "Takes any predictor of success rates.",
        ),
    },
    (WHICH, CODE): {
        mopps: (
            "a group each to the smallest (p - 1/2)^2, p a Thompson draw",
            "arXiv 2507.04632",
            "lambda is our default. Beliefs do not fade between visits, so that solved prompts "
            "return very rarely.",
        ),
        cures: (
            "drawn by exp(sqrt(p(1-p)) / tau), then n in proportion to sqrt(p(1-p))",
            "arXiv 2510.01037",
            "The released code samples almost uniformly, with a fixed posterior. The temperature "
            "is our default.",
        ),
        greso: (
            "skipped with probability 1 - p_e^z after z visits in a row without variance",
            "arXiv 2506.02177",
            "Constants from the released code; the smallest probability to keep a prompt is 1 %.",
        ),
        dump: (
            "category by softmax((mean |A| of its window + sqrt(2 ln(n + 1) / (n_c + 1))) / "
            "temperature)",
            "arXiv 2504.09710",
            "Needs domain_of=. Categories without signal are drawn less and less often, never with "
            "probability 0.",
        ),
        spo: (
            "one each, drawn by sqrt(v(1-v)) + 0.05, v = alpha / (alpha + beta), alpha <- rho "
            "alpha + r",
            "arXiv 2509.13232",
            "Baseline v, advantages whitened. rho is the constant 0.875 of the released code's "
            "option, without its "
            "dependence on drift. offline= takes the eight offline rollouts, given or charged to "
            "the run.",
        ),
        prime_pools: (
            "drawn by 0.2, 1 or 0.2 where the last mean is at most 1/4, 3/4 or 1, by 1 if never "
            "seen",
            "PrimeIntellect-ai/prime-rl@114f3ca",
            "Without replacement within a step.",
        ),
        bots: (
            "a group each to the draws nearest to 1/2, alpha <- 0.8 alpha + 0.2 + successes; "
            "unvisited, + 0.2 m p~",
            "arXiv 2510.26374",
            "p~ is the success that the model's capability implies; this needs anchors=, the rates "
            "of two models.",
        ),
    },
    (WHICH, FORMULAS): {
        adarft: (
            "a group each to the difficulties nearest to T, T <- T + 50 tanh(2 (mean reward - "
            "0.5)) in [0, 100]",
            "arXiv 2504.05520",
            "Difficulties are 100 (1 - s / n) of rollouts before training, by default eight of "
            "each prompt, measured "
            "by the run's first steps and charged to it. Prompts far from T are left out.",
        ),
        drive: (
            "phases (keep, steps, n): the share `keep` with the lowest E[p], n rollouts each",
            "arXiv 2511.06307",
            "72, 50 and 25 of 175 prompts, n = 64 (the paper also says 80). Other prompts are left "
            "out on purpose.",
        ),
        brorl: (
            "budget / n prompts at random, n = 512 each",
            "arXiv 2510.01180",
            "Breadth against depth at a fixed budget; `breadth_depth` and `lr_scale` are separate "
            "functions.",
        ),
        sec: (
            "category by softmax(Q / tau), Q <- alpha mean |A| + (1 - alpha) Q",
            "arXiv 2505.14970",
            "Needs domain_of=.",
        ),
        spo_pp: (
            "spo with alpha and beta fading by rho at every step, advantages whitened over tokens",
            "arXiv 2608.24870",
            "Without its clipping, which is part of the trainer's loss. offline= as in spo.",
        ),
        pac: (
            "each prompt's category by the largest draw of N(mu, s2), of (1 + share of slopes) "
            "mean |A|",
            "arXiv 2608.30528, Algorithm 1",
            "Needs domain_of=. Slopes need 3 steps, our reading. The first 50 steps draw "
            "categories uniformly.",
        ),
    },
    (WHICH, DESCRIBED): {
        vade: (
            "a group each to the largest p (1-p)^2, p a Thompson draw",
            "arXiv 2511.18902",
            "Read off the paper's figure, which suggests 0.2, 0.999 and groups of 8; the full text "
            "was not read.",
        ),
        depo: (
            "the share alpha_0 - d e with the largest mean |A| of the last visits, and the share "
            "rho least visited",
            "arXiv 2509.01321",
            "Without the entropy factor, which needs the trainer; all shares are our defaults.",
        ),
        masa: (
            "0 < p < 1 for the p that the model predicts",
            "arXiv 2510.03259",
            "Without predictions, the posterior mean in (0.1, 0.9), our bounds. The released code "
            "has no gate.",
        ),
        sgpo: (
            "p of eight rollouts before training: none above 3/4, else groups of 2, then 4, then 8 "
            ">= 1 / p",
            "arXiv 2606.08854",
            "The eight are measured by the run's first steps and charged to it. From an unofficial "
            "implementation; "
            "the paper was not read. The phases' lengths are our default. Solved prompts are left "
            "out.",
        ),
        pvpo: (
            "dropped at a reference mean of 1, kept between, at 0 kept only with a demonstration",
            "arXiv 2508.21104",
            "Posterior baseline. The chance to explore is our default; with 0, dropped prompts "
            "stay out.",
        ),
    },
    (ROUNDS, CODE): {
        pilot_commit: (
            "a pilot of 4, then up to 16 for the largest r (1-r) of the pilots' means r",
            "arXiv 2605.26606",
            "The paper's rule; the released code commits at random to pilot means in [0.125, "
            "0.75], from a buffer.",
        ),
        dars: (
            "after a pilot of N with share a < 1/2 of successes, ET: n = N / (4 a (1-a)), HW: n = "
            "N / (2 a)",
            "arXiv 2508.13755",
            "The extras are scaled to the budget. The group mean is biased, a baseline from before "
            "the step is not.",
        ),
    },
    (ROUNDS, FORMULAS): {
        speed: (
            "4 rollouts screen a prompt, 20 more if 0 < mean < 1",
            "arXiv 2506.09016",
            "Screening biases the group mean towards 1/2. A step may take a dozen rounds, the last "
            "ones small.",
        ),
        reinforce_ada: (
            "rounds of n until n/2 successes and n/2 failures; n rows are trained on",
            "arXiv 2510.04996",
            "quota='positive' stops at one success. The number of rounds is our default. No "
            "estimation variant.",
        ),
        dapo: (
            "whole batches of groups of new prompts until the mixed groups fill a batch",
            "arXiv 2503.14476",
            "The limit of generated batches is our default.",
        ),
    },
    (ROUNDS, DESCRIBED): {
        ar3po: (
            "k rollouts a round until the first success, S rounds at most, S k = 8",
            "arXiv 2509.25808",
            "S is our default. The group mean is biased, in two rounds by (1-p)^k p / 2: use a "
            "baseline from before "
            "the step. Responses are not reused.",
        ),
        hora: (
            "a pilot, then greedy on 1 - E[(1-p)^m] under Beta(1 + s, 1 + f)",
            "arXiv 2605.07114",
            "The size of the pilot is our default. Rewards of earlier steps are not used.",
        ),
        xrpo: (
            "after a base of 4, to the largest h(n) - h(n+1) + lambda sqrt(log(1+T) / n), h = t s "
            "/ sqrt(n)",
            "arXiv 2510.06672",
            "From transcriptions, which disagree on the bonus and T. lambda, base and rounds are "
            "our defaults.",
        ),
        v05: (
            "4, then 1 more while d / (d n + 1) falls by 0.0039, d = max(0, (2 mean - 2 V)^2 - 1 / "
            "n); at most 16",
            "arXiv 2603.10848",
            "Baseline w mean + (1 - w) V, w = d / (d + 1 / n). V is the posterior before the step, "
            "in the paper a "
            "pretrained value model. more=4 takes fewer rounds.",
        ),
        aero: (
            "8, without a success 2 more up to 16; below 1/2, the successes and as many failures "
            "are trained on",
            "arXiv 2602.14338",
            "Groups of equal rewards train on 4 rows against the mean of Beta(1 + c, 1 + n - c), "
            "all with the same "
            "advantage. generate is our default.",
        ),
    },
    (ROLLOUTS, CODE): {
        pods: (
            "of each group the m rewards of largest variance: the j lowest and the m - j highest",
            "arXiv 2504.13818",
            "Advantages are over all generated rollouts; in the released code, over the rows kept.",
        ),
        shuffle_r1: (
            "pairs (k-th largest, k-th smallest advantage), then 8 draws without replacement by "
            "|A1| + |A2|",
            "arXiv 2508.05612",
            "A rollout may be trained on several times. Too few positive weights are no error.",
        ),
        roc: (
            "round(m |positive| / n) successes of lowest penalty and the first failures, at least "
            "2 of each kind",
            "arXiv 2508.20722",
            "choose='drawn' follows quotations of the paper, whose text was not read.",
        ),
    },
    (ROLLOUTS, FORMULAS): {
        keep_mixed: (
            "groups of unequal rewards first",
            "arXiv 2503.14476",
            "The filter of dapo in one round, without resampling.",
        ),
        top_p: (
            "the fewest groups whose reward variances add up to a share p of all",
            "arXiv 2604.06268",
            "Groups of least variance fill the batch. p is our default.",
        ),
    },
    (ROLLOUTS, DESCRIBED): {
        cppo: (
            "of each group the rows of largest |(r - mean) / std|",
            "arXiv 2503.22342",
            "",
        ),
        d3s: (
            "of the whole batch the rows of largest variance of (r - mean) / std of their group",
            "arXiv 2509.22115",
            "Without the token level; `downselect.d3s_schedule` has the schedule.",
        ),
    },
    (BASELINE, CODE): {
        reinforce_pp: (
            "r whitened over the tokens of the batch, one rollout a prompt, in epochs",
            "arXiv 2501.03262",
            "As in verl with discount 1, without the penalty on the divergence, which the trainer "
            "has.",
        ),
        a_star_po: (
            "V* = 0.5 log mean exp(2 r) of eight rollouts before training, fixed; one rollout a "
            "prompt, in epochs",
            "arXiv 2505.20686",
            "Only the baseline. The eight rollouts are given, or measured by the first steps and "
            "charged to the run.",
        ),
    },
    (BASELINE, FORMULAS): {
        ebpo: (
            "(1 - S) group mean + S run mean, S = (s2 / n) / (s2 / n + t2), then whitened",
            "arXiv 2602.05165, Algorithm 1",
            "Without the paper's order of the prompts by topic.",
        ),
    },
}
"""Rule, source and note of each method, by its section and by what it was checked against."""

_STARVES = {knapsack, mopps, adarft, drive, sgpo}
_OF_RATES = {gvm, e3, dart, gate, spo, prime_pools, bots, adarft, drive, spo_pp, masa, sgpo}
_OF_RATES |= {pvpo, dars, reinforce_ada, ar3po, hora, v05, aero}


def _with_categories(build: Callable[..., Policy]) -> Callable[..., Policy]:
    return (
        partial(build, domain_of=_category) if "domain_of" in signature(build).parameters else build
    )


def _category(prompt: Id) -> str:
    """The category of a prompt in tests and benchmarks of the table: the last letter of its id."""
    return str(prompt)[-1]


METHODS: tuple[Method, ...] = tuple(
    Method(
        build.__name__,
        _with_categories(build),
        decides,
        rule,
        source,
        checked,
        build in _STARVES,
        build in _OF_RATES,
        note,
    )
    for (decides, checked), rows in _TABLE.items()
    for build, (rule, source, note) in rows.items()
)


def method_of(name: Any) -> Method:
    """The row with this name. Raises `InputError` for an unknown name and suggests the nearest one.

    >>> method_of("knapsack").decides
    'across prompts'
    """
    row = next((row for row in METHODS if row.name == name), None)
    if row is None:
        near = nearest(name, [row.name for row in METHODS])
        raise InputError(
            f"policy {shown(name)} is unknown{near} Use a name of `budgetalloc methods`, such as "
            "knapsack."
        )
    return row


def published() -> int:
    """The number of methods that implement a published rule.

    >>> published() + sum(method.source == "ours" for method in METHODS) == len(METHODS)
    True
    """
    return sum(method.source != OURS for method in METHODS)
