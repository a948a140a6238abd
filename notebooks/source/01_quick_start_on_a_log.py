# %% [markdown]
# # 01 How many rollouts of a run were wasted, and could that have been foreseen?
#
# The log of a finished GRPO run answers both, without a GPU or a language model, in seconds. This needs the extra
# `logs`: `pip install '.[logs]'` in the repository.

# %%
import os
import tempfile
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import budgetalloc as ba
from budgetalloc.offline.worlds import U_SHAPE, Task
from budgetalloc.report import as_text, report

LOOK = {"figure.constrained_layout.use": True, "figure.dpi": 80, "axes.grid": True, "axes.axisbelow": True}
LOOK |= {"grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}
plt.style.use(["seaborn-v0_8-colorblind", LOOK])

# %% [markdown]
# ## The run
#
# Set `LOG` to the path of your own run: TRL's `completions` folder (`log_completions=True`), verl's rollout dump,
# result files of prime-rl or verifiers, a W&B offline run, a `datasets` folder, a CSV of counts, or a ledger of
# budgetalloc.

# %%
LOG = None  # such as "outputs/my_run/completions"

# %% [markdown]
# Without a path, the notebook makes up a run: uniform GRPO with 32 prompts x 8 rollouts a step in `ba.Learner`, a small
# softmax policy that learns from its advantages. It is not a language model, and its figures say nothing about your
# run.


# %%
class Logged(ba.Learner):
    """A world that appends what it answers to a ledger, a step for each `learn`."""

    def __init__(self, path, **settings):
        super().__init__(**settings)
        self.log, self.step = ba.LedgerWriter(path), 0

    def rollout(self, ids_R):
        rewards_R = super().rollout(ids_R)
        unknown_R = np.full(len(ids_R), np.nan)
        self.log.append(self.step, ids_R, rewards_R, np.full(len(ids_R), -1), unknown_R, np.full(len(ids_R), 8))
        return rewards_R

    def learn(self, advantages_R):
        super().learn(advantages_R)
        self.step += 1


if LOG is None:
    os.chdir(tempfile.mkdtemp())
    LOG = Path("ledger.jsonl")
    task = Task(U_SHAPE.skills, coins=(0.25, 0.12), per_skill=20, offset=2.0)
    for _ in ba.simulate(ba.uniform(seed=0), Logged(LOG, task=task, rate=2e-5), 256, steps=400):
        pass

# %% [markdown]
# ## The report
#
# The same as `budgetalloc report LOG --no-replay` in a terminal. `--html page.html` writes a page to share, and
# `--json` prints the figures for other programs.

# %%
run = report(LOG, policies=())
print(as_text(run, width=100, unicode=True))

# %% [markdown]
# ## Where the rollouts went, over time
#
# Groups whose rewards are all equal give no gradient under GRPO's own baseline.

# %%
time = run.over_time(40)
middle = [(row["first"] + row["last"]) / 2 for row in time]
KINDS = {"mixed": ("C0", "mixed"), "all_fail": ("C2", "all fail"), "all_pass": ("C5", "all pass")}
KINDS |= {"tied": ("0.6", "tied"), "single": ("C4", "single rollouts")}
seen = [kind for kind in KINDS if any(row[kind] for row in time)]
figure, axis = plt.subplots(figsize=(8.5, 3.8))
axis.stackplot(
    middle,
    [[row[kind] for row in time] for kind in seen],
    colors=[KINDS[kind][0] for kind in seen],
    labels=[KINDS[kind][1] for kind in seen],
    alpha=0.85,
)
axis.set(xlabel="training step", ylabel="share of rollouts", ylim=(0, 1), xlim=(middle[0], middle[-1]))
handles, labels = axis.get_legend_handles_labels()
axis.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# ## Which prompts
#
# One point per prompt: its mean success over the run, and how many of its rollouts gave no gradient.

# %%
prompts = run.by_prompt
rate_P, share_P = prompts.success / prompts.rollouts, prompts.wasted / prompts.rollouts
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
left.plot(rate_P, share_P, "o", markersize=4, alpha=0.35, color="C0")
left.set(xlabel="mean success of the prompt over the run", ylabel="share of its rollouts wasted", ylim=(-0.02, 1.02))
reached = prompts.wasted.sort_values(ascending=False).to_numpy().cumsum()
right.plot(np.arange(1, len(reached) + 1) / len(reached), reached / reached[-1], color="C0")
right.plot([0, 1], [0, 1], color="0.6", linewidth=1)
right.set(xlabel="share of the prompts, most wasteful first", ylabel="share of the waste", xlim=(0, 1), ylim=(0, 1.01))
plt.show()
half = np.searchsorted(reached, reached[-1] / 2) + 1
print(f"half of the waste was in {half} of {len(reached)} prompts ({half / len(reached):.0%})")

# %% [markdown]
# The nearer a prompt's mean success is to 0 or 1, the more of its rollouts were wasted. Prompts that the model learned
# (or unlearned) during the run lie in between: their rollouts were wasted while all failed, and again when all passed.
# The grey line on the right shows waste that is spread evenly over the prompts.
#
# ## Could success have been predicted?
#
# Before each step, a belief from the earlier steps forecasts the success of each rollout. The picture has a point for
# each tenth of the forecasts, the larger the more rollouts; on the grey line the forecasts are calibrated. Notebook 02
# shows how to match the belief to your run.

# %%
tenths = run.success_deciles
figure, axis = plt.subplots(figsize=(5, 3.8))
axis.plot([0, 1], [0, 1], color="0.6", linewidth=1)
x, y = [row["predicted"] for row in tenths], [row["success"] for row in tenths]
axis.plot(x, y, color="C0", linewidth=1)
axis.scatter(x, y, s=[400 * row["rollouts"] / run.rollouts + 10 for row in tenths], color="C0", zorder=3)
axis.set(xlabel="predicted success of a rollout", ylabel="success that was", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
plt.show()

# %% [markdown]
# A large part of this run gave no gradient, and the history of a prompt foretells which: that is what a policy uses.
