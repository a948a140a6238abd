"""verl's real V1 trainer with a policy attached: Ray, TransferQueue, FSDP2, checkpoints, weight sync, validation.

runs.py trains in an environment with verl (`make .venv-verl/installed`) and writes down what verl's logger got. Only
the platform and the rollout server are replaced (verl_on_cpu.py), through verl's own registries: the k-th answer to a
prompt under given weights is always the same, so that runs can be compared.
"""

import json
import os
import signal
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.logs.prompt_texts import read_texts
from budgetalloc.training.belief_checkpoint import STATE_FILE
from budgetalloc.training.session import Session

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
PYTHON = Path(os.environ.get("BUDGETALLOC_VERL_PYTHON", ROOT / ".venv-verl/bin/python"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"{PYTHON} does not exist: make .venv-verl/installed"),
]
ROLLOUTS, PROMPTS = 32, 16  # of a step, and of the dataset
KEPT = ["uniform"]  # verl's own advantages
KINDS = ["sampled", "reinforce_pp", "pvpo", "keep_mixed"]
MEASURING = ["sgpo"]  # in its first step
ROUNDS = ["second_round", "own_batch", "grow"]
OWN = [
    "uniform_own",
    "thompson",
    "knapsack",
    "spo",
    "pods",
    "penalty",
    "graded",
    "agents",
    "whole",
    "two_workers",
    *ROUNDS,
    *KINDS,
]
AHEAD = ["ahead_one", "ahead", "ahead_resumed"]
GENERATED = {"pods": 4, "keep_mixed": 2}  # times the rollouts that are trained on
STEPS = {"thompson": 3, "knapsack": 3, "whole": 4, "grow": 4} | dict.fromkeys(
    ["uniform_own", "pods", "penalty", *KINDS], 1
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All runs of runs.py, made once also where pytest has several workers: starting verl costs most."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "verl"
    folder = Path(os.environ.get("BUDGETALLOC_VERL_RUNS", folder))  # runs that were made by hand
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            command = [str(PYTHON), str(HERE / "runs.py"), str(folder)]
            with (folder.parent / "verl.log").open("w+") as log:
                running = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                try:
                    status = running.wait(timeout=2400)
                finally:
                    if running.poll() is None:
                        os.killpg(running.pid, signal.SIGKILL)
                log.seek(0)
                assert status == 0, log.read()[-10_000:]
            (folder / "done").touch()
    return folder


@pytest.fixture(scope="module")
def seen(folder):
    """What verl's logger got: `seen[run]`, a dictionary for each step."""
    return json.loads((folder / "seen.json").read_text())


def test_features_describe_the_prompts_of_verl_s_dataset(folder):
    state, about = ba.load_state(folder / "features" / "global_step_2" / STATE_FILE)
    assert about["policy"].startswith("adaptive(features=Features(16 prompts x ")
    assert state["beliefs"].startswith("tracking")
    assert abs(state["weights"][1:]).max() > 0  # learned


def ledger_of(folder, name):
    return ba.Ledger.read(folder / name / "ledger.jsonl")


def by_step(ledger):
    """For each step, from 0: rollouts of each prompt."""
    return {
        int(step): Counter(
            name
            for name, at in zip(ledger.frame.prompt.tolist(), ledger.frame.step.to_numpy(), strict=True)
            if at == step
        )
        for step in np.unique(ledger.frame.step.to_numpy())
    }


def outcomes(ledger, step):
    """Prompts and rewards of a step; which of a prompt's sessions gets which answer differs from run to run."""
    at = np.flatnonzero(ledger.frame.step.to_numpy() == step)
    return sorted((ledger.frame.prompt.tolist()[row], float(ledger.frame.reward.to_numpy()[row])) for row in at)


def test_uniform_trains_as_verl_alone(seen):
    for alone, attached in zip(seen["plain"], seen["uniform"], strict=True):
        assert attached["actor/grad_norm"] == pytest.approx(alone["actor/grad_norm"], abs=1e-6)
        for key in alone:
            if key.startswith(("critic/", "response_length", "val-", "prompt_length")):
                assert attached[key] == pytest.approx(alone[key], abs=1e-6), key
        assert attached["budgetalloc/prompts"] == 8


@pytest.mark.parametrize(
    ("name", "after"),
    [("plain", [2]), ("uniform", [2]), ("whole", [4]), ("ahead_one", [2]), ("ahead", [2, 4]), ("ahead_resumed", [4])],
)
def test_validation_is_verls_own(seen, name, after):
    assert [logged["step"] for logged in seen[name] if any(key.startswith("val-") for key in logged)] == after


def test_our_own_group_advantages_are_verls_but_for_the_guard_against_zero(seen):
    alone, (attached,) = seen["plain"][0], seen["uniform_own"]
    assert attached["actor/grad_norm"] == pytest.approx(alone["actor/grad_norm"], rel=1e-3)
    assert attached["actor/grad_norm"] != alone["actor/grad_norm"]


def test_in_a_small_pool_the_default_trains_as_verl_alone(seen):
    """Its prompts are those of verl's loader, in groups of `rollout.n`."""
    for alone, attached in zip(seen["plain"], seen["small"], strict=True):
        assert attached["critic/score/mean"] == pytest.approx(alone["critic/score/mean"], abs=1e-6)
        assert attached["actor/grad_norm"] == pytest.approx(alone["actor/grad_norm"], rel=1e-3)
        assert attached["budgetalloc/prompts"] == 8


@pytest.mark.parametrize("name", [*KEPT, *OWN])
def test_every_step_spends_its_budget_and_the_server_has_the_newest_weights(seen, folder, name):
    counts = by_step(ledger_of(folder, name))
    steps = STEPS.get(name, 2)
    assert list(counts) == list(range(steps))
    assert [each["step"] for each in seen[name]] == list(range(1, steps + 1))
    for step, logged in zip(counts, seen[name], strict=True):
        assert sum(counts[step].values()) == ROLLOUTS * GENERATED.get(name, 1)
        assert len(counts[step]) == logged["budgetalloc/prompts"]
        assert 0 <= logged["actor/grad_norm"] < 100  # 0 where every group has equal rewards
        assert logged["training/rollout_probs_diff_max"] < 1e-5
    assert max(logged["actor/grad_norm"] for logged in seen[name]) > 0.1


@pytest.mark.parametrize("name", [*OWN, *AHEAD, "flaky", "resumed", "reinforce_ada", "grow_resumed", *MEASURING])
def test_verl_trains_on_the_policy_s_advantages(seen, name):
    """Among them those of groups of one, for which verl's grpo has the bare reward, and 0 for rows that fill up."""
    for logged in seen[name]:
        assert logged["critic/advantages/max"] == pytest.approx(logged["advantages"]["max"], abs=1e-5)
        assert logged["critic/advantages/min"] == pytest.approx(logged["advantages"]["min"], abs=1e-5)


@pytest.mark.parametrize("name", MEASURING)
def test_a_step_without_anything_to_train_on_changes_nothing(seen, name):
    assert seen[name][0]["actor/grad_norm"] == 0
    assert seen[name][0]["advantages"] == {"max": 0, "min": 0}


def test_prompts_are_chosen_from_the_whole_dataset(seen, folder):
    adaptive = by_step(ledger_of(folder, "whole"))
    assert max(map(len, adaptive.values())) > 8
    assert 1 in {count for counts in adaptive.values() for count in counts.values()}
    assert len(set().union(*adaptive.values())) == PROMPTS  # `index` is 0 for all of them
    knapsack = by_step(ledger_of(folder, "knapsack"))
    assert max(map(len, knapsack.values())) > 8
    thompson = by_step(ledger_of(folder, "thompson"))
    assert max(map(len, thompson.values())) <= 8
    assert seen["thompson"][-1]["budgetalloc/count/max"] > 4  # the second epoch: rollouts move inside the batch


def test_groups_are_extended_while_others_are_being_generated(seen):
    """In step 1 the range of the rewards is unknown, and rounds are whole. In even steps a group of the first request
    gets no answer before another group was extended."""
    assert {each["under_way"] for each in seen["grow"][0]["later"]} == {0}
    for step in (1, 3):
        assert any(each["under_way"] and each["extended"] for each in seen["grow"][step]["later"])
    for logged in (*seen["grow"], *seen["grow_resumed"]):
        assert sum(each["extended"] for each in logged["later"]) > 0


def test_a_growing_run_is_that_of_whole_rounds_without_verl(seen, folder):
    """Decisions, advantages and rounds follow from the rewards alone, whichever groups ended first."""
    ledger = ledger_of(folder, "grow")
    given = {
        "candidates": "all",
        "floor": 0,
        "baseline": "posterior",
        "trainer_scale": "group",
        "quiet": True,
        "fallback": False,
    }
    pool = list(dict.fromkeys(ledger_of(folder, "whole").frame.prompt.tolist()))
    session = Session(policies.growing(ba.uniform(), most=8), ["reward"], pool=pool, **given)
    for step, logged in enumerate(seen["grow"]):
        rewards = defaultdict(list)
        for row in np.flatnonzero(ledger.frame.step.to_numpy() == step).tolist():
            rewards[ledger.frame.prompt.tolist()[row]].append(float(ledger.frame.reward.to_numpy()[row]))
        left = {name: iter(values) for name, values in rewards.items()}
        session.begin([], ROLLOUTS, 4)
        while ids_R := session.request():
            session.observe(ids_R, [next(left[name]) for name in ids_R], [1] * len(ids_R))
        assert not [name for name, values in left.items() if list(values)]
        ended = session.end()
        expected = sorted(zip(ended.batch.rewards_R.tolist(), ended.advantages_R.tolist(), strict=True))
        assert np.array(sorted(map(tuple, logged["rows"]))) == pytest.approx(np.array(expected), abs=1e-5)


def test_a_policy_in_rounds_generates_more_than_it_trains_on(seen, folder):
    for counts in by_step(ledger_of(folder, "reinforce_ada")).values():
        assert ROLLOUTS < sum(counts.values()) <= 3 * ROLLOUTS
        assert set(counts.values()) <= {2, 4, 6}


def test_an_epoch_has_verls_number_of_steps_whatever_is_chosen(seen, folder):
    """With groups of 2, each of the two steps takes all 16 prompts."""
    counts = by_step(ledger_of(folder, "spo"))
    assert set(counts[0].values()) == {2}
    assert [len(each) for each in counts.values()] == [PROMPTS, PROMPTS]
    assert [logged["training/epoch"] for logged in seen["spo"]] == [0, 0]


@pytest.mark.parametrize("name", ["knapsack", "graded"])
def test_quotas_are_kept_at_every_step(seen, folder, name):
    """Of the whole dataset, in which math is a quarter, as code."""
    texts = read_texts(folder / name / "ledger.jsonl")  # "q3 12"
    subject = {
        prompt: ["math", "code", "chat", None][int(text[1:].split()[0]) % 8 // 2] for prompt, text in texts.items()
    }
    shares = []
    for logged, counts in zip(seen[name], by_step(ledger_of(folder, name)).values(), strict=True):
        inside = Counter()
        for prompt, count in counts.items():
            inside[subject[prompt]] += count
        shares.append({domain: inside[domain] / ROLLOUTS for domain in ("math", "code")})
        assert 0.5 <= shares[-1]["math"] <= 0.625
        assert shares[-1]["code"] <= 0.25
        assert {domain: logged[f"budgetalloc/share/{domain}"] for domain in ("math", "code")} == shares[-1]


def test_costs_a_mixture_and_a_shadow_are_served(seen, folder):
    """verl's single-turn loop counts two turns: the messages of the chat."""
    ledger = ledger_of(folder, "agents")
    for step, logged in enumerate(seen["agents"]):
        rows = ledger.frame.step.to_numpy() == step
        lengths_R, cost_R = ledger.frame.length.to_numpy()[rows], ledger.frame.cost.to_numpy()[rows]
        assert logged["budgetalloc/cost/missing"] == 0
        assert (cost_R >= lengths_R + 100).all()  # and a share of the prompt's tokens
        assert (cost_R <= lengths_R + 100 + 16).all()
        assert logged["budgetalloc/cost/target"] == 4000
        assert logged["budgetalloc/shadow/errors"] == 0
        assert 0 <= logged["budgetalloc/shadow/overlap"] <= 1
        shares = [logged[f"budgetalloc/share/{domain}"] for domain in ("math", "code", "chat", None)]
        assert sum(shares) == pytest.approx(1)
        assert min(shares) > 0
    state, _ = ba.load_state(folder / "agents" / "global_step_2" / STATE_FILE)
    assert any(key.startswith("shadow/") for key in state["parts"]["Shadow"])


def test_pacing_changes_the_rollouts_of_a_step(folder, seen):
    """verl fills up the batches of 16 and 48 rollouts to 32 and 64 rows, a mini-batch each."""
    assert [sum(counts.values()) for counts in by_step(ledger_of(folder, "paced")).values()] == [16, 48]
    for logged in seen["paced"]:
        assert logged["actor/grad_norm"] > 0.1
        assert logged["critic/advantages/max"] == pytest.approx(logged["advantages"]["max"], abs=1e-5)


def test_the_beliefs_do_not_see_the_penalty(folder, seen):
    ledger = ledger_of(folder, "penalty")
    assert set(ledger.frame.success.to_numpy()) == {0.0, 1.0}
    assert (ledger.frame.reward.to_numpy() != ledger.frame.success.to_numpy()).all()
    assert seen["penalty"][0]["actor/reward_kl_penalty"] != 0


def test_success_is_an_entry_beside_the_score(folder):
    ledger = ledger_of(folder, "graded")
    assert set(ledger.frame.success.to_numpy()) == {0.0, 1.0}
    graded_R = ledger.frame.reward.to_numpy() - 2 * ledger.frame.success.to_numpy()
    assert set(graded_R) <= {0.0, 0.25, 0.5, 0.75, 1.0}  # by the answer's length
    assert len(set(graded_R)) > 1


def test_rollouts_that_failed_are_missing_and_nothing_else(folder, seen):
    ledger = ledger_of(folder, "flaky")
    counts = [sum(step.values()) for step in by_step(ledger).values()]
    assert all(0 < count < ROLLOUTS for count in counts)  # verl fills up its batch to 32 rows
    assert not np.isnan(ledger.frame.reward.to_numpy()).any()
    assert [logged["step"] for logged in seen["flaky"]] == [1, 2]
    for logged, step in zip(seen["flaky"], by_step(ledger).values(), strict=True):
        assert logged["budgetalloc/prompts"] == len(step)


def test_rows_of_one_prompt_share_its_name(folder):
    assert set(ledger_of(folder, "graded").frame.prompt.tolist()) <= {f"task_{at}" for at in range(8)}  # of 16 rows


@pytest.mark.parametrize(
    ("uninterrupted", "stopped", "resumed"),
    [
        ("whole", "killed", "resumed"),
        ("ahead", "ahead_killed", "ahead_resumed"),
        ("grow", "grow_killed", "grow_resumed"),
    ],
)
def test_a_run_killed_in_a_step_goes_on_as_one_that_was_not(folder, seen, uninterrupted, stopped, resumed):
    """It died with the beliefs of step 3 written and the weights not, or with groups under way: verl goes on from
    step 2."""
    whole, again = ledger_of(folder, uninterrupted), ledger_of(folder, stopped)
    assert stopped not in seen
    assert [logged["step"] for logged in seen[resumed]] == [3, 4]
    assert by_step(whole) == by_step(again)
    for step in range(4):
        assert outcomes(whole, step) == outcomes(again, step)
    for one, other in zip(seen[uninterrupted][2:], seen[resumed], strict=True):
        for key in ("actor/grad_norm", "critic/advantages/max", "critic/advantages/min"):
            assert other[key] == pytest.approx(one[key], rel=1e-4), key
    state, about = ba.load_state(folder / stopped / "global_step_4" / "budgetalloc_state.npz")
    assert (state["step"], about["trainer_step"]) == (4, 4)


def test_a_group_that_was_under_way_at_the_checkpoint_is_issued_again(seen):
    assert seen["ahead_resumed"][0]["reissued"] == 1


@pytest.mark.parametrize("name", ["ahead_one", "ahead"])
def test_generating_ahead_counts_vary_and_a_batch_mixes_decisions(folder, seen, name):
    """4 groups are decided together before the first step, then 8 before each, and each batch takes the oldest 8."""
    counts = by_step(ledger_of(folder, name))
    assert set().union(*counts.values()) <= set(ledger_of(folder, "whole").frame.prompt.tolist())  # as from the loader
    for logged, groups in zip(seen[name], counts.values(), strict=True):
        assert logged["budgetalloc/prompts"] == len(groups) <= 8  # as many groups as verl asks for
        assert min(groups.values()) >= 2  # the floor
    assert len({count for groups in counts.values() for count in groups.values()}) > 1
    assert max(logged["training/off_policy/trajectory_staleness/max"] for logged in seen[name]) >= 1


def test_a_batch_is_of_the_oldest_groups_and_a_session_that_fails_or_hangs_costs_its_row(folder, seen):
    """The grader fails for some answers, and a session of the third group never ends."""
    trained = [[key.split("_")[0] for key in logged["sampled"]] for logged in seen["late"]]
    numbers = [sorted({int(uid.split(".")[1]) for uid in batch}) for batch in trained]
    assert [len(batch) for batch in numbers] == [8, 8, 8]
    order = [number for batch in numbers for number in batch]
    assert order == sorted(order)
    replaced = sum(logged.get("training/rollout_failure/evicted_samples", 0) for logged in seen["late"])
    assert order[-1] - 23 == replaced  # those of which no session came back
    assert seen["late"][0]["waited"] >= 3
    for logged, uids, counts in zip(seen["late"], trained, by_step(ledger_of(folder, "late")).values(), strict=True):
        assert logged["budgetalloc/lost"] > 0
        assert sorted(Counter(uids).values()) == sorted(counts.values())
    assert 2 in numbers[0]  # without the session that hangs
    assert seen["ahead_one"][0]["budgetalloc/lost"] == 0


def test_a_session_that_fails_is_counted(folder, seen):
    for logged, counts in zip(seen["flaky"], by_step(ledger_of(folder, "flaky")).values(), strict=True):
        assert logged["budgetalloc/lost"] == ROLLOUTS - sum(counts.values()) > 0


def test_the_text_of_each_prompt_lies_beside_the_ledger(folder):
    text = (folder / "whole" / "ledger.prompts").read_text()
    assert "q3 12" in text


def test_the_recipe_is_a_configuration_of_verl_that_is_served(seen):
    assert seen["recipe"] == {"mode": "budgetalloc", "policy": ba.adaptive().name, "rollouts": 1024}


def test_no_process_is_left_behind(folder, seen):
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"/tmp/bv{seen['pid']}/" not in running
