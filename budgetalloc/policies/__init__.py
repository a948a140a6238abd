"""Allocation policies: functions that compose a belief, a value and a solver, and return a
`Policy`."""

from budgetalloc.policies.adaptive import adaptive, sampled
from budgetalloc.policies.composition import knapsack, thompson, uniform
from budgetalloc.policies.gates import gate
from budgetalloc.policies.growing_groups import growing
from budgetalloc.policies.hints import on_all_fail
from budgetalloc.policies.interface import Hinted, Needs, Tally, View
from budgetalloc.policies.policy import Policy, Step
from budgetalloc.policies.published.across_prompts.cero import cero
from budgetalloc.policies.published.across_prompts.coba_rl import coba_rl
from budgetalloc.policies.published.across_prompts.dart import dart
from budgetalloc.policies.published.across_prompts.e3 import e3
from budgetalloc.policies.published.across_prompts.gvm import gvm
from budgetalloc.policies.published.across_prompts.knapsack_rl import knapsack_rl
from budgetalloc.policies.published.across_prompts.vip import vip
from budgetalloc.policies.published.in_rounds.aero import aero
from budgetalloc.policies.published.in_rounds.ar3po import ar3po
from budgetalloc.policies.published.in_rounds.dapo import dapo
from budgetalloc.policies.published.in_rounds.dars import dars
from budgetalloc.policies.published.in_rounds.hora import hora
from budgetalloc.policies.published.in_rounds.pilot_commit import pilot_commit
from budgetalloc.policies.published.in_rounds.reinforce_ada import reinforce_ada
from budgetalloc.policies.published.in_rounds.speed import speed
from budgetalloc.policies.published.in_rounds.v05 import v05
from budgetalloc.policies.published.in_rounds.xrpo import xrpo
from budgetalloc.policies.published.which_baseline.a_star_po import a_star_po
from budgetalloc.policies.published.which_baseline.ebpo import ebpo
from budgetalloc.policies.published.which_baseline.reinforce_pp import reinforce_pp
from budgetalloc.policies.published.which_prompts.adarft import adarft
from budgetalloc.policies.published.which_prompts.bots import bots
from budgetalloc.policies.published.which_prompts.brorl import brorl
from budgetalloc.policies.published.which_prompts.categories import dump, sec
from budgetalloc.policies.published.which_prompts.cures import cures
from budgetalloc.policies.published.which_prompts.depo import depo
from budgetalloc.policies.published.which_prompts.drive import drive
from budgetalloc.policies.published.which_prompts.greso import greso
from budgetalloc.policies.published.which_prompts.masa import masa
from budgetalloc.policies.published.which_prompts.mopps import mopps
from budgetalloc.policies.published.which_prompts.pac import pac
from budgetalloc.policies.published.which_prompts.prime_pools import prime_pools
from budgetalloc.policies.published.which_prompts.pvpo import pvpo
from budgetalloc.policies.published.which_prompts.sgpo import sgpo
from budgetalloc.policies.published.which_prompts.spo import spo, spo_pp
from budgetalloc.policies.published.which_prompts.vade import vade
from budgetalloc.policies.published.which_rollouts.cppo import cppo
from budgetalloc.policies.published.which_rollouts.pods import d3s, pods
from budgetalloc.policies.published.which_rollouts.roc import roc
from budgetalloc.policies.published.which_rollouts.shuffle_r1 import shuffle_r1
from budgetalloc.policies.published.which_rollouts.whole_groups import keep_mixed, top_p
from budgetalloc.policies.rounds import sequential

__all__ = [
    "Hinted",
    "Needs",
    "Policy",
    "Step",
    "Tally",
    "View",
    "a_star_po",
    "adaptive",
    "adarft",
    "aero",
    "ar3po",
    "bots",
    "brorl",
    "cero",
    "coba_rl",
    "cppo",
    "cures",
    "d3s",
    "dapo",
    "dars",
    "dart",
    "depo",
    "drive",
    "dump",
    "e3",
    "ebpo",
    "gate",
    "greso",
    "growing",
    "gvm",
    "hora",
    "keep_mixed",
    "knapsack",
    "knapsack_rl",
    "masa",
    "mopps",
    "on_all_fail",
    "pac",
    "pilot_commit",
    "pods",
    "prime_pools",
    "pvpo",
    "reinforce_ada",
    "reinforce_pp",
    "roc",
    "sampled",
    "sec",
    "sequential",
    "sgpo",
    "shuffle_r1",
    "speed",
    "spo",
    "spo_pp",
    "thompson",
    "top_p",
    "uniform",
    "v05",
    "vade",
    "vip",
    "xrpo",
]
