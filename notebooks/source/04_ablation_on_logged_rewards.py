# %% [markdown]
# # 04 What does a replay tell about a policy, and how much of it was logged?
#
# Which part of a policy matters: the belief, the value, the solver, or the prompts on offer? A replay of a log answers
# in seconds and without a GPU, in mixed groups. This notebook changes one part at a time, and shows at each step how
# much of the answer is logged and how much is modelled.
#
# **The log.** Set `LOG` to your own run. A public one is `data/acc_step_500.json` of github.com/ypwang61/One-Shot-RLVR
# (arXiv 2504.20571, Apache-2.0): how often each of 1,209 prompts passed at its visits while Qwen2.5-Math-1.5B was
# trained. Without a log, the notebook makes one up, of uniform GRPO in `ba.Learner`. The text is about that one.

# %%
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib import pyplot as plt
from scipy.special import comb

import budgetalloc as ba
from budgetalloc.logs.ledger import read_log  # as `ba.Ledger.read`, which also logs the notes
from budgetalloc.offline.comparison import compare
from budgetalloc.offline.worlds import U_SHAPE, Task
from budgetalloc.report import report

LOOK = {"figure.constrained_layout.use": True, "figure.dpi": 80, "axes.grid": True, "axes.axisbelow": True}
LOOK |= {"grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}
plt.style.use(["seaborn-v0_8-colorblind", LOOK])

LOG = None  # such as "outputs/my_run/completions", or a CSV with prompt_id, visit, successes, rollouts


# %%
class Logged(ba.Learner):
    """A world that writes a CSV of counts, a row a group."""

    def __init__(self, path, *args, **settings):
        super().__init__(*args, **settings)
        self.path, self.visits = path, {}
        path.write_text("prompt_id,visit,successes,rollouts\n")

    def rollout(self, ids_R):
        rewards_R = super().rollout(ids_R)
        prompts, at_R = np.unique(ids_R, return_inverse=True)
        passed, rollouts = np.bincount(at_R, weights=rewards_R), np.bincount(at_R)
        with self.path.open("a") as file:
            for row in zip(prompts, passed, rollouts, strict=True):
                visit = self.visits[row[0]] = self.visits.get(row[0], -1) + 1
                file.write(f"{row[0]},{visit},{row[1]:.0f},{row[2]}\n")
        return rewards_R


if LOG is None:
    LOG = Path(tempfile.mkdtemp()) / "made_up.csv"
    world = Logged(LOG, Task(U_SHAPE.skills, per_skill=10, offset=2.0), rate=2e-5, seed=0)
    for _ in ba.simulate(ba.uniform(seed=0), world, 256, steps=150):
        pass
ledger = read_log(LOG)
groups = ledger.frame.groupby(["step", "prompt"])["reward"].agg(["sum", "size"])
GROUP = int(groups["size"].median())
print(f"{len(ledger):,} rollouts of {ledger.frame.prompt.nunique():,} prompts, groups of {GROUP}")
print(dict(ledger.notes))  # what was left out or assumed

# %% [markdown]
# ## What the log contains
#
# The file has visits instead of steps, so a visit is read as a step: first all first visits, then all second ones.

# %%
run = report(ledger, policies=())
print({kind: round(share, 3) for kind, share in run.kinds.items()})
rows = pd.DataFrame(run.over_time(30))
figure, left = plt.subplots(figsize=(6, 3.6))
middle = (rows["first"] + rows["last"]) / 2
for kind, color, label in (("mixed", "C0", "mixed"), ("all_fail", "C2", "all fail"), ("all_pass", "C3", "all pass")):
    left.plot(middle, rows[kind], color=color, label=label)
left.plot(middle, rows["reward"], color="black", linestyle=":", label="mean reward")
left.set(xlabel="visit of each prompt", ylabel="share of rollouts", ylim=(0, 1), title="Groups by what they showed")
left.legend(loc="upper center", ncols=4, fontsize=9, columnspacing=1, handlelength=1.5)
plt.show()

# %% [markdown]
# The rollouts outside the blue line were in groups that gave no gradient. While the model learns, groups that all pass
# replace groups that all fail.
#
# ## What the log shows without a model
#
# From a group of 8, the chance that a *smaller* group of m would have been mixed has an unbiased estimate, the mean
# over all sub-samples (Hoeffding 1948). This picture involves no policy and no belief:


# %%
passed_G, n_G = groups["sum"].round().to_numpy(), groups["size"].to_numpy()


def mixed_within(m):
    """1 - C(s, m) / C(n, m) - C(n - s, m) / C(n, m) for s successes in n rollouts; NaN where m > n."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 - (comb(passed_G, m) + comb(n_G - passed_G, m)) / comb(n_G, m)


sizes = np.arange(2, GROUP + 1)
mixed_M = np.array([np.nanmean(mixed_within(m)) for m in sizes])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3))
left.plot(sizes, mixed_M, marker="o", color="C0")
left.set(xlabel="rollouts m of a group", ylabel="share of groups mixed", ylim=(0, 1), xticks=sizes)
right.plot(sizes, 1000 * mixed_M / sizes, marker="o", color="C0")
right.set(xlabel="rollouts m of a group", ylabel="mixed groups per 1,000 rollouts", ylim=(0, None), xticks=sizes)
plt.show()
for m, mixed in zip(sizes, mixed_M, strict=True):
    print(f"m = {m}: {mixed:.3f} of groups mixed, {1000 * mixed / m:.0f} per 1,000 rollouts")

# %% [markdown]
# Smaller groups give more mixed groups for the same rollouts. (The gradient of a small mixed group is also noisier; the
# figure counts groups and does not measure learning.)
#
# ## One change at a time
#
# The base moves rollouts inside the batch: the posterior, the value `mixed_group`, the greedy solver, discount 0.9.
# Each row changes one thing. `compare` replays the log for each policy and seed; if a policy requests more rollouts of
# a prompt than were logged, a beta-binomial model draws their rewards, and the share of these rollouts is reported.

# %%
FOUR = ba.Needs(candidates=4, baseline="group")  # four times as many prompts to choose among


def among_four(build):
    """The same policy, choosing among four times the batch's prompts."""
    return lambda seed: replace(build(seed=seed), needs=FOUR)


def drawn(seed):
    """The base at a Thompson draw, inside the batch."""
    return replace(ba.thompson(value=ba.mixed_group, discount=0.9, idle=1.0, seed=seed), needs=ba.Needs())


def neyman(seed):
    """The base's belief, and counts in proportion to the standard deviation of the reward."""

    def decide(view):
        return ba.proportional(np.sqrt(view.belief_P.moment(1, 1)), None, view.budget)

    return ba.Policy("neyman", decide, ba.BetaEstimator(discount=0.9), seed)


def tracking(seed):
    """The base with beliefs that learn from all prompts."""
    return replace(ba.knapsack(seed=seed), estimator=ba.TrackingEstimator())


INSIDE = {
    "uniform": ba.uniform,
    "base: knapsack": ba.knapsack,
    "belief: its mean": partial(ba.knapsack, belief="mean"),
    "belief: a draw": drawn,
    "belief: discount 1": partial(ba.knapsack, discount=1.0),
    "belief: discount 0.5": partial(ba.knapsack, discount=0.5),
    "belief: tracking": tracking,
    "value: success_gain": partial(ba.knapsack, value=ba.success_gain),
    "value: variance": partial(ba.knapsack, value=ba.variance),
    "value: pass_at_n": partial(ba.knapsack, value=ba.pass_at_n),
    "solver: proportional": neyman,
}
BUDGET = ba.Budget(rollouts=32 * GROUP, floor=2, cap=8 * GROUP)
settings = {"steps": min(60, len(ledger) // BUDGET.rollouts), "seeds": range(3), "workers": 1}
inside = compare(INSIDE, ledger, BUDGET, **settings)
COLUMNS = ["mixed", "mixed_diff", "mixed_diff_low", "mixed_diff_high"]
COLUMNS += ["modelled", "mixed_rollouts"]
display(inside[COLUMNS].round(3))


# %%
def dots(table, title):
    """Mixed groups a step minus uniform's, with intervals; next to it, the share of rollouts in mixed groups."""
    _, (left, right) = plt.subplots(1, 2, figsize=(10.5, 0.32 * len(table) + 1.3), sharey=True)
    for at, name in enumerate(table.index):
        row = table.loc[name]
        color = "black" if at == 0 else "C0"
        error = [[row["mixed_diff"] - row["mixed_diff_low"]], [row["mixed_diff_high"] - row["mixed_diff"]]]
        left.errorbar(row["mixed_diff"], at, xerr=error, fmt="o", color=color, capsize=3)
        right.plot(row["mixed_rollouts"], at, "o", color=color)
    left.axvline(0, color="black", linewidth=1)
    left.set_yticks(range(len(table)), table.index)
    left.set(xlabel=f"mixed groups a step, minus {table.index[0]}'s", title=title, ylim=(len(table) - 0.5, -0.5))
    right.set(xlabel="share of rollouts in mixed groups", xlim=(0, 1))
    plt.show()


dots(inside, "Inside the batch")

# %% [markdown]
# Left: mixed groups a step, which the base maximises. Moving rollouts inside a batch of 32 groups gains less than one
# mixed group. The value matters most: values with another objective gain none, or lose some.
#
# Right: the share of rollouts in mixed groups, which is another measure, because large groups are mixed more often. A
# part of the rewards is modelled (`modelled`): the logged rewards alone do not prove the gain.
#
# ## Among more prompts than the batch
#
# With four times as many candidates and no floor, a policy also chooses *which* prompts to roll out. Two warnings.
# Intervals are over seeds of the replay: another draw from the same log, not another training run. And learning does
# not react: in a log, rates move whether a prompt is rolled out or not, while in training the model forgets prompts
# that are never rolled out again. The knapsack without exploration looks good here, and loses to uniform in training.

# %%
OPEN = replace(BUDGET, floor=0)
AMONG = {
    "uniform": ba.uniform,
    "knapsack": among_four(ba.knapsack),
    "knapsack, at the mean": among_four(partial(ba.knapsack, belief="mean")),
    "thompson, mixed_group": among_four(partial(ba.thompson, value=ba.mixed_group)),
    "thompson, success_gain": among_four(ba.thompson),
    "vade": among_four(ba.methods.vade),
    "sampled, groups of two": among_four(partial(ba.policies.sampled, groups=2)),
}
among = compare(AMONG, ledger, OPEN, **settings)
display(among[COLUMNS].round(3))
dots(among, "Among four times the batch")

# %% [markdown]
# The choice of prompts doubles the mixed groups, but up to half of the rewards behind that are modelled, and a count of
# mixed groups does not say which policy trains best (notebook 05).
