# %% [markdown]
# # 03 What is a rollout worth, and which solver spends the budget best?
#
# A **value** is what n rollouts of a prompt are worth: `value(belief, counts_N) -> values_PN`. A **solver** spends the
# budget on values: `solver(values_PN, costs_P, budget) -> counts_P`. Both are pure functions, so each can be examined
# alone. Success rates are known here (`ba.Point`), so beliefs play no role.

# %%
import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib import pyplot as plt
from scipy import stats

import budgetalloc as ba

LOOK = {"figure.constrained_layout.use": True, "figure.dpi": 80, "axes.grid": True, "axes.axisbelow": True}
LOOK |= {"grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}
plt.style.use(["seaborn-v0_8-colorblind", LOOK])

# %% [markdown]
# ## Four values
#
# `mixed_group` is the chance of a success and a failure in the same group; `success_gain` is that chance times
# p(1-p)^2, which is largest at p = 1/3; `variance` is how much n rollouts lower the variance of
# the gradient; `pass_at_n` is the chance of at least one success.

# %%
VALUES = {value.__name__: value for value in (ba.mixed_group, ba.success_gain, ba.variance, ba.pass_at_n)}
rate = np.linspace(0, 1, 201)
counts = np.arange(0, 33)
figure, axes = plt.subplots(2, 4, figsize=(11, 5.2), sharex="row")
for k, (name, value) in enumerate(VALUES.items()):
    for color, p in enumerate((0.05, 0.2, 0.5)):
        axes[0, k].plot(counts, value(ba.Point([p]), counts)[0], color=f"C{color}", label=f"p = {p}")
    for style, n in (("-", 32), ("--", 8), (":", 2)):
        axes[1, k].plot(rate, value(ba.Point(rate), [n])[:, 0], color="black", linestyle=style, label=f"n = {n}")
    axes[0, k].set(title=name, xlabel="rollouts n", ylim=(0, None))
    axes[1, k].set(xlabel="success rate p", ylim=(0, None))
axes[0, 0].set_ylabel("value")
axes[1, 0].set_ylabel("value")
axes[0, 3].legend(loc="upper left", bbox_to_anchor=(1, 1))
axes[1, 3].legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# Each value rises with n, and each further rollout adds less (**concave**, from the smallest group on). The values
# differ in p: `variance` is largest at one half, `success_gain` for prompts that mostly fail, and `pass_at_n` for
# prompts that pass, for which a first success is nearly certain and further rollouts add little.
#
# ## One batch, six ways to spend
#
# 25 prompts with rates from 0.02 to 0.98 and 200 rollouts, 8 each on average.

# %%
p = np.linspace(0.02, 0.98, 25)
prompts = ba.Point(p)
budget = ba.Budget(rollouts=200, floor=2)
neyman = np.sqrt(p * (1 - p))
spent = {f"greedy on {name}": ba.greedy(value(prompts, budget.grid()), None, budget) for name, value in VALUES.items()}
spent["proportional to sqrt(p(1-p))"] = ba.proportional(neyman, None, budget)
spent["uniform"] = ba.proportional(np.ones(len(p)), None, budget)


def worth(value, counts_P, budget):
    """The total value of these counts."""
    values_PN = value(prompts, budget.grid())
    return values_PN[np.arange(len(counts_P)), np.searchsorted(budget.grid(), counts_P)].sum()


table = pd.DataFrame(
    {
        f"total {name}": [worth(value, counts_P, budget) for counts_P in spent.values()]
        for name, value in VALUES.items()
    },
    index=list(spent),
)
display(table.round(3))
same = (spent["greedy on variance"] == spent["proportional to sqrt(p(1-p))"]).all()
print(f"greedy on variance and proportional to sqrt(p(1-p)) give the same counts: {same}")

figure, axes = plt.subplots(2, 3, figsize=(10.5, 5), sharex=True, sharey=True)
for axis, (name, counts_P) in zip(axes.flat, spent.items(), strict=True):
    axis.bar(p, counts_P, width=0.03, color="C2" if "proportional" in name else "C3" if name == "uniform" else "C0")
    axis.set_title(name, fontsize=11)
for axis in axes[:, 0]:
    axis.set_ylabel("rollouts")
for axis in axes[1]:
    axis.set_xlabel("success rate p of the prompt")
plt.show()

# %% [markdown]
# Each `greedy` row of the table is the best in the column of its own value.
#
# - `mixed_group` spends most on prompts that are *nearly* hopeless or nearly solved: at one half, a few rollouts are
#   enough for a mixed group. At both ends, where a mixed group needs too many rollouts, the count falls to the floor.
# - `success_gain` does the same on the left, and leaves prompts that nearly always pass at the floor.
# - `pass_at_n` spends on the left only, on prompts that rarely pass.
# - `variance` and the proportional rule with Neyman's weight sqrt(p(1-p)) give the same counts: counts in proportion to
#   the standard deviations minimise the total variance. `proportional` needs only weights and no value of every count,
#   but serves this one objective: on `mixed_group` it does worse than uniform.
#
# ## When greedy is exact, and how to know
#
# `greedy` takes the best gain per rollout until the budget is spent. For concave values that is the optimum. HiGHS
# (`ba.certify`) needs no concavity, and proves a bound that no counts can exceed:

# %%
proofs = {}
for name, value in VALUES.items():
    values_PN = value(prompts, budget.grid(24))
    best = ba.certify(values_PN, None, budget, time_limit=300)
    proofs[name] = (worth(value, ba.greedy(values_PN, None, budget), budget), best.value, best.bound, best.optimal)
display(pd.DataFrame(proofs, index=["greedy", "HiGHS", "bound that HiGHS proved", "search ended"]).T)

# %% [markdown]
# The totals are equal, up to the tolerance of HiGHS. That is why `greedy` is the default: with a floor it is exact for
# all values of this package, and far faster (`benchmarks/solvers.py` measures how much).
#
# ## Values that are not concave
#
# Suppose that a prompt counts only if it gives at least four correct answers, for example to fine-tune on them. The
# first three rollouts are then worth nothing: the value is not concave. `greedy` replaces it by its concave hull and
# opens whole groups. If the last one does not fit, it searches exactly among the prompts at the margin, by dynamic
# programming.


# %%
def four_correct(belief, counts_N):
    """The chance of at least four successes."""
    return stats.binom.sf(3, np.asarray(counts_N), belief.mean[:, None])


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
for color, rate in enumerate((0.3, 0.5, 0.8)):
    left.plot(counts, four_correct(ba.Point([rate]), counts)[0], color=f"C{color}", label=f"p = {rate}")
left.set(xlabel="rollouts n", ylabel="chance of four correct answers", title="A value that is not concave")
left.legend(loc="lower right")

totals = np.arange(40, 122, 9)
gaps = []
for total in totals:
    chosen = ba.Budget(rollouts=int(total), floor=0, cap=32)
    values_PN = four_correct(prompts, chosen.grid())
    best = ba.certify(values_PN, None, chosen, time_limit=300)
    gaps.append(worth(four_correct, ba.greedy(values_PN, None, chosen), chosen) / best.bound)
right.plot(totals, gaps, marker="o", markersize=4, color="C0")
right.axhline(1, color="0.5", linewidth=1)
right.set(xlabel="rollouts to spend", ylabel="greedy / the bound that HiGHS proved", title="What greedy gets of it")
plt.show()
print(f"greedy gets {min(gaps):.3f} to {max(gaps):.3f} of the bound, on average {np.mean(gaps):.3f}")

# %% [markdown]
# The search takes in all prompts of a small problem, which is then solved exactly, and the nearest ones of a large one,
# where the loss is at most one block of one prompt. The docstring of `ba.greedy` says how small is small.
#
# ## What greedy refuses
#
# One threshold on gains is not enough for two resources at once, or a limit on the number of prompts. `greedy` refuses
# two resources by name and has no limit on prompts; HiGHS solves both. Quotas by domain are no obstacle: a domain's
# value is concave in its total, so that a threshold over all domains is optimal.
#
# What to use:
#
# | you have | solver |
# |---|---|
# | a budget in rollouts (with quotas, too) *or* in tokens | `ba.greedy` |
# | weights and no value, such as Neyman's | `ba.proportional` |
# | rollouts *and* tokens, or a limit on prompts | `ba.highs` |
# | a doubt about the result of any of them | `ba.certify`, and compare with its bound |
#
# `ba.knapsack(value=..., solver=...)` and `ba.thompson(value=..., solver=...)` take both as arguments.
#
# Suppose that every third prompt is code, with answers four times as long as those of the others:

# %%
domains = ["code" if k % 3 == 0 else "math" for k in range(len(p))]
costs = np.array([800 if domain == "code" else 200 for domain in domains])
tight = ba.Budget(rollouts=200, tokens=60_000, floor=2, cap=24)
quota = ba.Budget(rollouts=200, floor=2, cap=24, quotas={"code": (100, 120)})
few = ba.Budget(rollouts=200, floor=0, cap=24)
try:
    ba.greedy(ba.mixed_group(prompts, tight.grid()), costs, tight)
except ba.UnsupportedError as error:
    print(f"UnsupportedError: {error}\n")

plain = ba.Budget(rollouts=200, floor=2, cap=24)
answers = {
    "200 rollouts": ba.greedy(ba.mixed_group(prompts, plain.grid()), None, plain),
    "and 60,000 tokens": ba.highs(ba.mixed_group(prompts, tight.grid()), costs, tight, time_limit=300),
    "and 100 or more for code": ba.greedy(ba.mixed_group(prompts, quota.grid()), None, quota, domains_P=domains),
    "and at most 12 prompts": ba.highs(ba.mixed_group(prompts, few.grid()), None, few, max_prompts=12),
}
code = np.array(domains) == "code"
table = pd.DataFrame(
    {
        "rollouts": [counts_P.sum() for counts_P in answers.values()],
        "of them code": [counts_P[code].sum() for counts_P in answers.values()],
        "tokens": [int(counts_P @ costs) for counts_P in answers.values()],
        "prompts": [(counts_P > 0).sum() for counts_P in answers.values()],
        "expected mixed groups": [
            ba.mixed_group(prompts, np.arange(25))[np.arange(25), counts_P].sum() for counts_P in answers.values()
        ],
    },
    index=list(answers),
)
display(table.round(2))

figure, axes = plt.subplots(1, 4, figsize=(11, 3), sharey=True)
for axis, (name, counts_P) in zip(axes, answers.items(), strict=True):
    axis.bar(p[~code], counts_P[~code], width=0.03, color="C0", label="math, 200 tokens")
    axis.bar(p[code], counts_P[code], width=0.03, color="C2", label="code, 800 tokens")
    axis.set_title(name, fontsize=11)
    axis.set_xlabel("success rate p")
axes[0].set_ylabel("rollouts")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()

# %% [markdown]
# Each further constraint costs mixed groups, and the limit on prompts costs most: twelve prompts give at most twelve
# mixed groups.
