"""Published methods: a module a paper, each a function that returns a `Policy`.

All take `seed`, of draws and ties. Where they have them, `group` is the rollouts of a prompt that
is chosen, `prior`, `discount` and `idle` are those of `ba.BetaEstimator`, and `generate` is the
rollouts generated for each one trained on. A count is at least 1 and a share lies in [0, 1], unless
the annotation says otherwise. A bad argument raises `InputError`.
"""

from budgetalloc.methods.a_star_po import a_star_po as a_star_po
from budgetalloc.methods.adarft import adarft as adarft
from budgetalloc.methods.aero import aero as aero
from budgetalloc.methods.ar3po import ar3po as ar3po
from budgetalloc.methods.bbg import bbg as bbg
from budgetalloc.methods.bots import bots as bots
from budgetalloc.methods.brorl import brorl as brorl
from budgetalloc.methods.categories import dump as dump
from budgetalloc.methods.categories import sec as sec
from budgetalloc.methods.cero import cero as cero
from budgetalloc.methods.coba_rl import coba_rl as coba_rl
from budgetalloc.methods.cropi import cropi as cropi
from budgetalloc.methods.cures import cures as cures
from budgetalloc.methods.dapo import dapo as dapo
from budgetalloc.methods.dars import dars as dars
from budgetalloc.methods.dart import dart as dart
from budgetalloc.methods.depo import depo as depo
from budgetalloc.methods.drive import drive as drive
from budgetalloc.methods.e3 import e3 as e3
from budgetalloc.methods.ebpo import ebpo as ebpo
from budgetalloc.methods.gates import gate as gate
from budgetalloc.methods.gates import masa as masa
from budgetalloc.methods.greso import greso as greso
from budgetalloc.methods.gvm import gvm as gvm
from budgetalloc.methods.hints import on_all_fail as on_all_fail
from budgetalloc.methods.hora import hora as hora
from budgetalloc.methods.knapsack_rl import knapsack_rl as knapsack_rl
from budgetalloc.methods.mopps import mopps as mopps
from budgetalloc.methods.pac import pac as pac
from budgetalloc.methods.pilot_commit import pilot_commit as pilot_commit
from budgetalloc.methods.prime_pools import prime_pools as prime_pools
from budgetalloc.methods.pvpo import pvpo as pvpo
from budgetalloc.methods.reinforce_ada import reinforce_ada as reinforce_ada
from budgetalloc.methods.reinforce_pp import reinforce_pp as reinforce_pp
from budgetalloc.methods.sgpo import sgpo as sgpo
from budgetalloc.methods.speed import speed as speed
from budgetalloc.methods.spo import spo as spo
from budgetalloc.methods.spo import spo_pp as spo_pp
from budgetalloc.methods.v05 import v05 as v05
from budgetalloc.methods.vade import vade as vade
from budgetalloc.methods.vigor import vigor as vigor
from budgetalloc.methods.vip import vip as vip
from budgetalloc.methods.which_rollouts import cppo as cppo
from budgetalloc.methods.which_rollouts import d3s as d3s
from budgetalloc.methods.which_rollouts import keep_mixed as keep_mixed
from budgetalloc.methods.which_rollouts import pods as pods
from budgetalloc.methods.which_rollouts import roc as roc
from budgetalloc.methods.which_rollouts import shuffle_r1 as shuffle_r1
from budgetalloc.methods.which_rollouts import top_p as top_p
from budgetalloc.methods.xrpo import xrpo as xrpo
