# %% [markdown]
# # 02 What does a policy know about a prompt, and can one trust it?
#
# Before a step, an allocation policy holds a **belief** about each prompt's success rate p: a Beta distribution, kept
# by an **estimator** from the rewards seen so far. All decisions follow from the belief. This notebook shows what a
# belief means, how it follows a language model that learns, and how to test whether it is calibrated.

# %%
import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib import pyplot as plt
from scipy import stats

import budgetalloc as ba
from budgetalloc.offline.worlds import U_SHAPE, Task

LOOK = {"figure.constrained_layout.use": True, "figure.dpi": 80, "axes.grid": True, "axes.axisbelow": True}
LOOK |= {"grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}
plt.style.use(["seaborn-v0_8-colorblind", LOOK])

# %% [markdown]
# ## What a belief means
#
# `BetaEstimator` starts every prompt at a prior and adds successes and failures. Four histories:

# %%
HISTORIES = {"never seen": [], "0 of 8 passed": [0] * 8, "4 of 8 passed": [0, 1] * 4, "8 of 8 passed": [1] * 8}
estimator = ba.BetaEstimator(prior=(0.5, 0.5))
for name, rewards in HISTORIES.items():
    estimator.observe([name] * len(rewards), rewards)
belief = estimator.belief(HISTORIES)
counts = np.arange(0, 33)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
p = np.linspace(0.001, 0.999, 500)
mixed = ba.mixed_group(belief, counts)
plugged = ba.mixed_group(ba.Point(belief.mean), counts)
for k, name in enumerate(HISTORIES):
    left.plot(p, stats.beta.pdf(p, belief.alpha_P[k], belief.beta_P[k]), color=f"C{k}", label=name)
    right.plot(counts, mixed[k], color=f"C{k}", linestyle="--" if name == "8 of 8 passed" else "-")
    right.plot(counts, plugged[k], color=f"C{k}", linestyle=":")
left.set(xlabel="success rate p", ylabel="density of the belief", ylim=(0, 6), title="The belief")
left.legend(title="history", loc="upper center")
right.set(xlabel="rollouts n", ylabel="chance of a mixed group", ylim=(0, 1.03), title="What follows for a group of n")
right.plot([], [], color="black", label="expected under the belief")
right.plot([], [], color="black", linestyle=":", label="at its mean alone")
right.legend(handles=right.get_lines()[-2:], loc="lower right", bbox_to_anchor=(1, 0.05))
plt.show()

# %% [markdown]
# A group has a gradient under GRPO's own baseline only if it is **mixed**: at least one success and one failure. Under
# a Beta the probability of a mixed group has a closed form, `1 - E[p^n] - E[(1-p)^n]`. After "0 of 8" and after "8 of
# 8" the probabilities are the same: the dashed line covers the other one.
#
# The dotted lines use the mean of the belief instead of the belief. They are too high, most of all for a prompt that
# was never seen: its mean is one half, like that after "4 of 8" (one dotted line for both), but much of the belief lies
# near 0 and 1, where hardly any group is mixed. The same numbers at n = 8, with what a **Thompson draw** does: one p
# drawn from the belief and taken as true for a step.

# %%
draws = [ba.mixed_group(belief.sample(np.random.default_rng(seed)), [8])[:, 0] for seed in range(2000)]
low, high = np.percentile(draws, [10, 90], axis=0)
table = pd.DataFrame(
    {
        "mean of p": belief.mean,
        "mixed at n = 8: whole belief": mixed[:, 8],
        "at the mean": plugged[:, 8],
        "mean over draws": np.mean(draws, axis=0),
        "draws, 10 % to 90 %": [f"{a:.2f} to {b:.2f}" for a, b in zip(low, high, strict=True)],
    },
    index=list(HISTORIES),
)
display(table.round(3))

# %% [markdown]
# Draws agree with the whole belief on average and are spread widely where there is little evidence. That spread is the
# exploration: for a prompt that failed eight times, some draws are high enough to give the prompt a group. The three
# columns use the same value function, and differ in the belief passed to it: `belief`, `ba.Point(belief.mean)` and
# `belief.sample(rng)`.
#
# ## The language model learns, so evidence becomes outdated
#
# `ba.Learner` is a small softmax policy, not a language model. It learns from the advantages, and every prompt's true
# rate is known at every step. The next cell runs uniform GRPO in this world and records all rewards and rates:

# %%
STEPS = 300
SKILLS = U_SHAPE.skills  # from nearly mastered to nearly unknown
TASK = Task(SKILLS, coins=(0.25, 0.12), per_skill=20)


class Recorded(ba.Learner):
    """A world that keeps what it answered, and the true rates before it did."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.steps = []

    def rollout(self, ids_R):
        truth_P = self.rates(self.ids)
        rewards_R = super().rollout(ids_R)
        self.steps.append((ids_R, rewards_R, truth_P))
        return rewards_R


world = Recorded(TASK, rate=5e-5, seed=0)
rows = list(ba.simulate(ba.uniform(seed=0), world, 256, steps=STEPS))
print(f"{len(world.ids)} prompts, {STEPS} steps of 32 prompts x 8 rollouts")
print(f"held-out success {rows[0]['success']:.2f} -> {rows[-1]['success']:.2f}")

# %% [markdown]
# Estimators differ in how fast they forget: at each visit, the evidence so far is multiplied by `discount`. The picture
# shows the beliefs about one prompt, which the model learns in the middle of the run, with two discounts; each belief
# is the one *before* the step.

# %%
DISCOUNTS = {"discount=1 (forgets nothing)": 1.0, "discount=0.4": 0.4}
truth_SP = np.array([truth_P for *_, truth_P in world.steps])
rise_P = truth_SP[-1] - truth_SP[0] - 2 * np.abs(truth_SP[STEPS // 2] - 0.5)
prompt = int(np.argmax(rise_P))

figure, axis = plt.subplots(figsize=(8.5, 3.8))
axis.plot(truth_SP[:, prompt], color="black", label="true rate")
for k, (name, discount) in enumerate(DISCOUNTS.items()):
    estimator = ba.BetaEstimator(discount=discount)
    band_S2P, mean_SP = [], []
    for ids_R, rewards_R, _ in world.steps:
        belief = estimator.belief(world.ids)
        band_S2P.append(stats.beta.ppf([[0.05], [0.95]], belief.alpha_P, belief.beta_P))
        mean_SP.append(belief.mean)
        estimator.observe(ids_R, rewards_R)
        estimator.tick()
    low_SP, high_SP = np.swapaxes(band_S2P, 0, 1)
    axis.plot(np.array(mean_SP)[:, prompt], color=f"C{2 * k}", label=f"posterior mean, {name}")
    axis.fill_between(np.arange(STEPS), low_SP[:, prompt], high_SP[:, prompt], color=f"C{2 * k}", alpha=0.2)
    inside = ((low_SP <= truth_SP) & (truth_SP <= high_SP)).mean()
    print(f"{name}: the true rate lies in the 90 % band in {inside:.0%} of all steps and prompts")
axis.set(xlabel="training step", ylabel="success rate", ylim=(0, 1.02), title="One prompt: mean and 90 % of the belief")
axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# An estimator that forgets nothing has narrow beliefs around rates that are no longer true. One that forgets follows
# the true rate with a delay, and its wider band contains the true rate more often, though still less often than 90 %: a
# belief does not use what the language model learns from *other* prompts.
#
# ## Calibration: do forecasts agree with the observed shares?
#
# The fair test is **one step ahead**: before each group is rolled out, forecast whether it will be mixed; then compare.
# A forecast is calibrated if, of the groups given a chance near 0.7, about 0.7 are mixed. The log-loss (in nats,
# smaller is better) is the score that also rewards forecasts that differ between groups.

# %%
ESTIMATORS = {
    "discount 1": {},
    "discount 0.9": {"discount": 0.9},
    "discount 0.4": {"discount": 0.4},
    "last visit only": {"discount": 0.0},
    "prior (0.3, 0.3), idle 0.98: sampled()'s": {"prior": (0.3, 0.3), "idle": 0.98},
    "tracking": None,
}


def forecasts(steps, settings):
    """The chance of a mixed group before each group, whether it was mixed, and whether the prompt had been seen."""
    estimator, found = ba.TrackingEstimator() if settings is None else ba.BetaEstimator(**settings), []
    for ids_R, rewards_R, _ in steps:
        ids_P, group_R = np.unique(ids_R, return_inverse=True)
        n_P, passed_P = np.bincount(group_R), np.bincount(group_R, weights=rewards_R)
        chance_P = ba.mixed_group(estimator.belief(ids_P), [8])[:, 0]  # every group has 8 here
        found.append([chance_P, (passed_P > 0) & (passed_P < n_P), ~estimator.cold(ids_P)])
        estimator.observe(ids_R, rewards_R)
        estimator.tick()
    return [np.concatenate(column) for column in zip(*found, strict=True)]


def log_loss(chance_G, mixed_G):
    chance_G = np.clip(chance_G, 1e-6, 1 - 1e-6)
    return -np.where(mixed_G, np.log(chance_G), np.log(1 - chance_G)).mean()


told = {name: forecasts(world.steps, settings) for name, settings in ESTIMATORS.items()}
truth_G = np.concatenate(
    [ba.mixed_group(ba.Point(truth_P[np.unique(ids_R)]), [8])[:, 0] for ids_R, _, truth_P in world.steps]
)
_, mixed_G, seen_G = told["discount 1"]
scores = {
    name: (
        log_loss(chance_G[seen_G], mixed_G[seen_G]),
        chance_G[seen_G].mean(),
        log_loss(chance_G[~seen_G], mixed_G[~seen_G]),
    )
    for name, (chance_G, _, _) in told.items()
}
share = np.full(len(mixed_G), mixed_G[seen_G].mean())
scores["one constant for all, in hindsight"] = (log_loss(share[seen_G], mixed_G[seen_G]), share[0], np.nan)
scores["the true rates"] = (
    log_loss(truth_G[seen_G], mixed_G[seen_G]),
    truth_G[seen_G].mean(),
    log_loss(truth_G[~seen_G], mixed_G[~seen_G]),
)
table = pd.DataFrame(scores, index=["log-loss, prompts seen before", "mixed, forecast", "log-loss, first visits"]).T
print(f"{seen_G.sum():,} groups of prompts seen before, {mixed_G[seen_G].mean():.3f} of them mixed")
display(table.round(3))

# %% [markdown]
# In this world a prompt is visited about every 16 steps, and its rate moves far in between: an estimator that forgets
# nothing does worse than one constant for all, and the best discount is low. A real run can differ: in the log that
# `benchmarks/learning/predict.py` reads (Qwen2.5-Math-1.5B), rates move little between visits and a discount of 0.9 is
# about right. Notebook 04 measures the discount on your log.
#
# The column on the right is about prompts at their first visit, for which an estimator has only its prior. A
# **tracking** estimator (`TrackingEstimator`) learns the prior from the prompts seen so far. It also learns by how much
# all success rates rise, and how fast evidence is out of date. Choose `discount` by this log-loss, because it depends
# on how far your prompts move between visits; if you do not know it, use `TrackingEstimator`.
#
# In the picture, points are tenths of the forecasts with 95 % intervals (groups taken as independent). The grey line is
# perfect calibration.

# %%
figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.9), sharey=True)
for axis, name in zip(axes, ("discount 1", "discount 0.4", "tracking"), strict=True):
    chance_G = told[name][0][seen_G]
    bin_G = np.minimum((chance_G * 10).astype(int), 9)
    points = [
        (chance_G[bin_G == b].mean(), mixed_G[seen_G][bin_G == b], b) for b in range(10) if (bin_G == b).sum() > 20
    ]
    axis.plot([0, 1], [0, 1], color="0.5", linewidth=1)
    x, y = [point[0] for point in points], np.array([point[1].mean() for point in points])
    n = np.array([len(point[1]) for point in points])
    axis.errorbar(x, y, 1.96 * np.sqrt(y * (1 - y) / n), marker="o", markersize=5, capsize=2, color="C0")
    axis.set(xlabel="chance that was forecast", xlim=(0, 1), ylim=(0, 1), title=name)
axes[0].set_ylabel("share that was mixed")
axes[0].annotate("forecast too high", (0.93, 0.12), ha="right", color="0.3")
axes[0].annotate("forecast too low", (0.04, 0.86), color="0.3")
plt.show()

# %% [markdown]
# A belief that forgets nothing is overconfident at both ends, and forgetting brings its forecasts to the line.
