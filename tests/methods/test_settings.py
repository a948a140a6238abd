"""A setting outside its range is refused, and the error names it."""

import re
from functools import partial

import pytest

import budgetalloc as ba
from budgetalloc import InputError, policies

NAN, INF = float("nan"), float("inf")
BY_ID = {"domain_of": lambda prompt: prompt}
BAD = {
    "adaptive": {"explore": 1.1},
    "sampled": {"draw": 2, "groups": 5, "power": (-1, 2), "unsolved": -0.1, "explore": 1.1},
    "cero": {"rate": 0.0, "saturation": -1.0, "high": 0, "rho": 1.5, "prior": "pool", "horizon": 0},
    "coba_rl": {"kappa": 1.0, "low": 0, "high": 1, "window": 0, "tau": 3.0},
    "dart": {"group": 0, "reduced": 9, "easy": 1.5, "discount": 2},
    "e3": {"group": 0, "fewest": 9, "most": 7, "change": -1, "epoch": 0},
    "gvm": {"alpha": -1, "beta": 0.5, "group": 1.5},
    "knapsack_rl": {"low": 0, "high": 1, "recent": 0, "fewest": 0, "confidence": 1.0, "surplus": "all"},
    "vip": {"form": "neyman", "group": 0},
    "gate": {"group": 0, "lo": 1.0, "hi": 1.5, "explore": -1},
    "aero": {"group": 0, "rescue": 0, "most": 7, "generate": 1},
    "ar3po": {"group": 0, "stages": 9},
    "dapo": {"generate": 0, "order": "best"},
    "dars": {"group": True, "variant": "et", "most": 7, "share": 1.0},
    "hora": {"pilot": 2.5},
    "pilot_commit": {"pilot": 1, "share": 1.0},
    "reinforce_ada": {"stages": 0, "more": 0, "quota": "any"},
    "speed": {"init": 1, "cont": 0},
    "vigor": {"first": 1, "rounds": 0, "share": 1.0},
    "v05": {"first": 0, "most": 3, "more": 0, "cost": 2},
    "xrpo": {"base": 1, "rounds": 0, "alpha": 1.0, "weight": -1, "bonus": "log", "clock": "hours", "share": 0},
    "a_star_po": {"beta": 0, "offline": -1},
    "reinforce_pp": {"group": 0},
    "adarft": {"group": 0, "goal": 2, "start": 101},
    "bots": {"group": 0, "rate": 1, "weight": 2, "target": -1},
    "brorl": {"group": 1.5},
    "dump": {"group": 0, "temperature": 0, "domain_of": "algebra", "window": 0},
    "sec": {"group": 0, "temperature": 0, "domain_of": "algebra", "rate": 0},
    "bbg": {"k": 1, "least": -1},
    "cropi": {"group": 0, "ratio": 1.5},
    "cures": {"fewest": 9, "temperature": 0, "first": -1},
    "depo": {"group": 0, "window": 0, "alpha": 2, "decay": -1, "lowest": 1.1, "replay": 0},
    "drive": {"discount": -1},
    "greso": {"explore": 0.0, "target": -0.1, "change": 2, "least": 0},
    "masa": {"explore": 2},
    "mopps": {"group": 0, "target": 1.5, "discount": NAN},
    "pac": {"domain_of": 3, "window": 0, "inflation": 0, "cold": -1, "group": 0},
    "prime_pools": {"group": 0, "pools": 3},
    "pvpo": {"enough": 0},
    "sgpo": {"phases": (5, 2), "unsolved": 2, "offline": 0},
    "spo": {"rho": 1.0, "eps": 0, "offline": "8"},
    "spo_pp": {"rho": 1.0, "eps": 0, "offline": 0},
    "vade": {"group": 2.5},
    "pods": {"generate": 1},
    "roc": {"penalty": -1},
    "shuffle_r1": {"draws": 0},
    "top_p": {"share": 0.0},
}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, settings in BAD.items() for key in settings])
def test_a_bad_setting_is_named(name, key):
    needed = BY_ID if "domain_of" in BAD[name] else {}
    with pytest.raises(InputError, match=re.escape(f"{key}={BAD[name][key]!r}")):
        getattr(ba.methods, name, getattr(policies, name, None))(**needed | {key: BAD[name][key]})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (partial(policies.knapsack, belief="median"), r"belief='median': use one of \('posterior', 'mean'\)"),
        (partial(policies.sampled, power=(1, NAN)), "power="),
        (partial(policies.sampled, power=(17, 0)), "power="),
        (partial(ba.methods.cero, prior=(0.0, 1.0)), "prior"),
        (partial(ba.methods.coba_rl, tau=(0.0, 1.0)), "tau"),
        (partial(ba.methods.coba_rl, tau=(3.0, 2.0)), "tau"),
        (partial(ba.methods.e3, fewest=9), "fewest=9: use an integer from 1 to 8"),
        (partial(ba.methods.e3, most=7), "most=7: use an integer of at least 8"),
        (partial(ba.methods.dars, most=7), "most=7: use an integer of at least 8"),
        (partial(ba.methods.bots, anchors={"a": 0.5}), r"anchors\['a'\]=0.5"),
        (partial(ba.methods.bots, anchors={"a": (0.5, 1.5)}), r"anchors\['a'\]=1.5"),
        (partial(ba.methods.gate, lo=0.5, hi=0.5), "hi=0.5"),
        (partial(ba.methods.drive, phases=[]), r"phases=\[\]: give at least one"),
        (partial(ba.methods.drive, phases=[(0.5, 8)]), r"phases holds \(0.5, 8\)"),
        (partial(ba.methods.drive, phases=[(72, 64, 64)]), r"keep=72: use a number in \(0, 1\]"),
        (partial(ba.methods.drive, phases=[(0.5, 0, 64)]), "steps=0"),
        (partial(ba.methods.drive, phases=[(0.5, 1, 0)]), "n=0"),
        (partial(ba.methods.prime_pools, pools=((0.5, 1.0),)), "the last is 1"),
        (partial(ba.methods.prime_pools, pools=((0.5, 1.0), (0.2, 1.0), (1.0, 1.0))), "ascend"),
        (partial(ba.methods.prime_pools, pools=((1.0, 0.0),)), "weight of pools=0"),
        (partial(ba.methods.prime_pools, pools=()), "pools="),
        (partial(ba.methods.pvpo, reference={"a": 2.0}), r"reference\['a'\]=2.0"),
        (partial(ba.methods.sgpo, phases=(5,)), r"phases=\(5,\)"),
        *[
            (partial(make, offline=offline), text)
            for make in (ba.methods.spo, ba.methods.spo_pp)
            for offline, text in (
                (0, "offline=0"),
                ({"a": 3}, r"offline\['a'\]=3"),
                ({"a": (9, 8)}, r"successes of offline\['a'\]=9"),
                ({"a": (1, 2.5)}, r"rollouts of offline\['a'\]=2.5"),
            )
        ],
    ],
)
def test_a_bad_part_of_a_setting_is_named(make, text):
    with pytest.raises(InputError, match=text):
        make()
