# %% [markdown]
# # 05 Which policies learned more in real training, and would a count of mixed groups have said so?
#
# `benchmarks/learning/` trained a tiny language model with TRL's own `GRPOTrainer` many times: policies x task mixes x
# seeds, each policy at the learning rate that was best for it on other seeds. This notebook reads the results of four
# mixes on which all methods were run; nothing is trained. Harder mixes are in `benchmarks/learning/README.md`, and
# `budgetalloc demo` trains. `sampled` is `policies.sampled(groups=2)`, the default of 0.5.0; `adaptive` is today's, at
# the learning rate of uniform groups.

# %%
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib import pyplot as plt
from scipy import stats

LOOK = {"figure.constrained_layout.use": True, "figure.dpi": 80, "axes.grid": True, "axes.axisbelow": True}
LOOK |= {"grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}
plt.style.use(["seaborn-v0_8-colorblind", LOOK])

BENCHMARK = Path("../benchmarks/learning")
sys.path.insert(0, str(BENCHMARK))
from run import read
from table import best_uniform, collect, of_table

from budgetalloc.offline.intervals import interval, stratified_interval

rows = [run for file in ("results.jsonl", "table.jsonl") for run in read(BENCHMARK / file)]
mixes = ["u_shape", "hard_tail", "seen_once", "growing"]  # those that all methods were run on
curves = {mix: collect(rows, mix)[0] for mix in mixes}  # by mix, policy and seed
rollouts = collect(rows, mixes[0])[1]
base = {mix: best_uniform(rows, mix) for mix in mixes}  # uniform at the group size that is best on other seeds
runs = [len(by_seed) for by_policy in curves.values() for by_seed in by_policy.values()]
print(f"{len(rows)} runs, {sum(runs)} of them of tuned policies on {len(mixes)} mixes: {', '.join(mixes)}")
print(base)

# %% [markdown]
# ## Learning curves
#
# Success is the exact probability of the right answer on held-out prompts, so the curves have no sampling noise of
# their own. Every rollout that was generated counts, also those that a policy discards. The mix `u_shape` has skills
# from nearly mastered to nearly unknown; bands are 95 % intervals of the mean over seeds, by Student's t. `uniform` has
# groups of 8 here and in all that follows, except where "the best uniform" is named: its group size of 2, 4, 8 and 16
# was chosen on other seeds.

# %%
SHOWN = {"adaptive": "C0", "ar3po": "C1", "uniform": "black", "vade": "C3", "dapo": "C2", "reinforce_ada": "0.55"}
figure, axes = plt.subplots(1, 2, figsize=(10.5, 3.8), sharex=True)
for axis, mix in zip(axes, ("u_shape", "hard_tail"), strict=True):
    for name, color in SHOWN.items():
        table_SG = np.array(list(curves[mix][name].values()))
        mean_G = table_SG.mean(axis=0)
        low_G, high_G = np.array([interval(values_S) for values_S in table_SG.T]).T
        axis.plot(rollouts / 1000, mean_G, color=color, label=name)
        axis.fill_between(rollouts / 1000, low_G, high_G, color=color, alpha=0.12, linewidth=0)
        end = f"{mean_G[-1]:.3f} ({low_G[-1]:.3f} to {high_G[-1]:.3f})"
        print(f"{mix:<10} {name:<14} ends at {end}, {len(table_SG)} seeds")
    axis.set(xlabel="rollouts generated (thousands)", title=mix)
axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1))
axes[0].set_ylabel("held-out success")
plt.show()

# %% [markdown]
# ## Ahead of the best uniform, over all mixes
#
# The mean success over a run, minus that of the best uniform with the same seeds. Hollow points are single mixes; the
# filled one is their mean, with a 95 % interval over seeds.


# %%
def gains(name):
    """Mean success over the run minus that of the best uniform, one array over seeds for each mix."""
    found = []
    for mix in mixes:
        own, best = curves[mix][name], curves[mix][base[mix]]
        found.append(np.array([(own[seed] - best[seed]).mean() for seed in sorted(own.keys() & best.keys())]))
    return found


everywhere = [name for name in curves["u_shape"] if all(name in curves[mix] for mix in mixes)]
everywhere.sort(key=lambda name: np.mean([x.mean() for x in gains(name)]))
figure, axis = plt.subplots(figsize=(8, 4))
table = {}
for at, name in enumerate(everywhere):
    by_mix = gains(name)
    middle, (low, high) = np.mean([x.mean() for x in by_mix]), stratified_interval(by_mix)
    table[name] = [middle, low, high, *(x.mean() for x in by_mix)]
    axis.plot(
        [x.mean() for x in by_mix], [at] * len(by_mix), "o", color="C0", fillstyle="none", markersize=5, alpha=0.6
    )
    axis.errorbar(middle, at, xerr=[[middle - low], [high - middle]], fmt="o", color="C0", capsize=3, markersize=7)
axis.axvline(0, color="black", linewidth=1)
axis.set_yticks(range(len(everywhere)), everywhere)
axis.set(xlabel="mean held-out success over the run, minus the best uniform's", title="Equal rollouts generated")
plt.show()
display(pd.DataFrame(table, index=["all mixes", "low", "high", *mixes]).T[::-1].round(3))

# %% [markdown]
# Policies that resample until groups are mixed (`dapo`, `thompson_dapo`, `reinforce_ada`) discard rollouts that count,
# and are behind. Where an interval contains 0, no difference was seen.
#
# ## What carries the gain: one change at a time
#
# On `u_shape` there are runs that differ in one thing from their neighbour:
#
# | policy | which prompts it chooses | group | baseline |
# |---|---|---|---|
# | `uniform` | the batch, as the loader gives it | 8 | the group's mean |
# | `thompson_group` | a Thompson draw, then the knapsack, over the pool | as the knapsack says | the group's mean |
# | `thompson_posterior` | the same | the same | leave-one-out posterior |
# | `equal_singles` | every prompt alike | 1 | leave-one-out posterior |
# | `sampled` | in proportion to sqrt(p(1-p)^2) of a draw | 1; 2 to 4 without history | leave-one-out posterior |
# | `adaptive` | every prompt alike, after those that failed | the same; doubled if failed | leave-one-out posterior |

# %%
LADDER = ["uniform", "thompson_group", "thompson_posterior", "equal_singles", "sampled", "adaptive"]
before = None
figure, axis = plt.subplots(figsize=(8, 3.4))
for at, name in enumerate(LADDER):
    means = np.array([curve.mean() for curve in curves["u_shape"][name].values()])
    low, high = interval(means)
    axis.plot(means, [at] * len(means), "o", color="C0", fillstyle="none", markersize=5, alpha=0.6)
    axis.errorbar(means.mean(), at, xerr=[[means.mean() - low], [high - means.mean()]], fmt="o", color="C0", capsize=3)
    text = f"{name:<18} {means.mean():.3f} ({low:.3f} to {high:.3f})"
    if before is not None:  # paired by seed
        both = sorted(set(before) & set(curves["u_shape"][name]))
        step = np.array([(curves["u_shape"][name][seed] - before[seed]).mean() for seed in both])
        text += ", minus the one before {:+.3f} ({:+.3f} to {:+.3f})".format(step.mean(), *interval(step))
    before = curves["u_shape"][name]
    print(text)
axis.set_yticks(range(len(LADDER)), LADDER)
axis.invert_yaxis()
axis.set(xlabel="mean held-out success over the run (u_shape)", title="Hollow: single seeds. Filled: mean and 95 %")
plt.show()

# %% [markdown]
# The choice by a draw is seen to be ahead of uniform. For each other step the interval contains 0. Two of the policies
# have three seeds, too few to say which part carries the gain; `benchmarks/learning/README.md` has more runs on it.
#
# ## Mixed groups do not measure learning
#
# The share of rollouts in mixed groups is what a replay can count, and what several methods maximise. Policies that
# resample pay for the rollouts that they discard, and policies that maximise mixed groups keep training on the prompts
# that stay mixed, such as traps, whose reward is a coin toss. To add a policy of your own, give it a row in `RIVALS` of
# `benchmarks/learning/run.py`. The models are tiny and the tasks are made up: the ranking may differ for your model.
#
# Mixed groups against learning, in each mix:

# %%
share = {}
for row in (row for mix in mixes for row in of_table(rows, mix)):
    share.setdefault((row["mix"], row["policy"]), []).append(row.get("mixed", np.nan))
figure, axes = plt.subplots(1, len(mixes), figsize=(11, 3.6), sharex=True)
for axis, mix in zip(axes, mixes, strict=True):
    names = list(curves[mix])
    x = np.array([np.mean(share[mix, name]) for name in names])
    y = np.array([np.mean(list(curves[mix][name].values())) for name in names])
    axis.plot(x, y, "o", color="0.6", markersize=6, label="others")
    for name, color in (("uniform", "black"), ("adaptive", "C0"), ("ar3po", "C1"), ("reinforce_ada", "C2")):
        at = names.index(name)
        axis.plot(x[at], y[at], "o", color=color, markersize=8, label=name)
    grouped = [name not in ("adaptive", "sampled", "equal_singles") for name in names]  # groups of one are never mixed
    axis.set(title=mix, xlabel="rollouts in mixed groups", xlim=(-0.05, 0.8))
    rank = stats.spearmanr(x[grouped], y[grouped]).statistic
    print(f"{mix:<10} rank correlation over {sum(grouped)} policies with groups of two and more: {rank:+.2f}")
axes[0].set_ylabel("mean held-out success")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
plt.show()

# %% [markdown]
# Within each mix, policies with *more* mixed groups learned *less*: a count of mixed groups shows where rollouts were
# wasted, and not which policy to train with.
