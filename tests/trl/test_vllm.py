"""vLLM on a CPU, in the process and behind TRL's server: each prompt gets its own completions.

vllm_runs.py trains in an environment with vLLM (`make .venv-vllm/installed`) and records the runs. A completion belongs
to its prompt if the trained model gives it the log-probabilities with which vLLM sampled it. This also shows that vLLM
has the weights of that step.
"""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import attach, fresh_model, make_tokenizer
from filelock import FileLock

import budgetalloc as ba

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("BUDGETALLOC_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
needs_vllm = pytest.mark.skipif(not PYTHON.exists(), reason=f"{PYTHON} does not exist: make .venv-vllm/installed")

MODES = ["colocate", "server"]
ATTACHED = ["uniform", "thompson", "adaptive", "odd", "ar3po", "reinforce_ada"]
RUNS = ["plain", *ATTACHED]  # and "strided", see below
BATCH, STEPS, SIZE = 16, 3, 4
NEAR = 1e-3  # a difference of log-probabilities; other prompts and earlier weights differ by more


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All runs of vllm_runs.py, made once even for several workers of pytest, because starting vLLM takes long."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "vllm"
    with FileLock(f"{folder}.lock"):
        if not (folder / "seen.json").exists():
            model = fresh_model(head_dim=32)  # vLLM's attention on a CPU needs such heads
            model.config.max_position_embeddings = 64
            model.save_pretrained(folder / "model")
            make_tokenizer().save_pretrained(folder / "model")
            env = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "TORCHDYNAMO_DISABLE": "1",  # compiling costs more than it saves here
                "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # there may be no core to spare
                "VLLM_CACHE_ROOT": str(folder / "cache"),
                "VLLM_HOST_IP": "127.0.0.1",
                "VLLM_NO_USAGE_STATS": "1",
                "HF_HUB_OFFLINE": "1",
                "NO_PROXY": "127.0.0.1",
                "no_proxy": "127.0.0.1",
            }
            command = [str(PYTHON), str(Path(__file__).with_name("vllm_runs.py")), str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=2400, check=False, env=env)
            assert done.returncode == 0, done.stderr[-5000:]
    return folder


@pytest.fixture(scope="module")
def seen(folder):
    """`seen[mode][name]`: the calls of TRL's vLLM generation, and the batches of the loss."""
    return json.loads((folder / "seen.json").read_text())


def by_step(run):
    """The calls of each training step: its rounds."""
    return [[call for call in run["calls"] if call["training"] and call["step"] == step] for step in range(STEPS)]


@needs_vllm
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RUNS)
def test_every_completion_belongs_to_its_prompt_and_the_newest_weights(seen, mode, name):
    run = seen[mode][name]
    assert max(gap for call in run["calls"] for gap in call["gaps"]) < NEAR
    assert all(by_step(run))
    assert run["moved"] > 1e-3  # up to 1e-2 per step, and 0 in a step whose groups all have equal rewards


@needs_vllm
def test_with_the_size_of_equal_groups_the_server_would_mix_up_prompts(seen):
    """The callback prevents this: TRL takes each num_generations-th row as a prompt, and does not notice."""
    far = {mode: [gap for call in seen[mode]["strided"]["calls"] for gap in call["gaps"]] for mode in MODES}
    assert sum(gap > 100 * NEAR for gap in far["server"]) >= STEPS
    assert max(far["colocate"]) < NEAR  # in the process TRL requests each row separately


@needs_vllm
@pytest.mark.parametrize("mode", MODES)
def test_each_row_is_a_separate_prompt_unless_the_rows_are_trls(seen, mode):
    for name in RUNS:
        told = {call["told"] for call in seen[mode][name]["calls"] if call["training"]}
        assert told == ({SIZE} if name in ("plain", "uniform") else {1})
    evaluations = [call for call in seen[mode]["thompson"]["calls"] if not call["training"]]
    assert evaluations
    for call in evaluations:  # untouched
        assert call["told"] == SIZE
        assert set(Counter(call["prompts"]).values()) == {SIZE}


@needs_vllm
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RUNS)
def test_trained_rows_have_their_own_ratios(seen, mode, name):
    """Also after a merge of rounds, and if only some rows are trained on."""
    batches = seen[mode][name]["batches"]
    assert len(batches) == STEPS
    for batch, calls in zip(batches, by_step(seen[mode][name]), strict=True):
        assert len(batch["prompts"]) == len(batch["ratios"]) == BATCH
        assert max(batch["gaps"]) < NEAR
        np.testing.assert_allclose(batch["ratios"], 1.0, atol=4 * NEAR)  # of four tokens, where there is one a row
        wide, longest = batch["wide"]
        assert wide == (longest if name in ("adaptive", "odd", "reinforce_ada") else 1)
        generated = Counter(prompt for call in calls for prompt in call["prompts"])
        assert Counter(batch["prompts"]) <= generated


@needs_vllm
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ATTACHED)
def test_budgets_are_exact_and_the_ledger_holds_every_rollout(folder, seen, mode, name):
    log = ba.Ledger.read(folder / f"{mode} {name}.jsonl")
    sizes = []
    for step, calls in enumerate(by_step(seen[mode][name])):
        here = log.frame.step.to_numpy() == step
        prompts = [prompt for call in calls for prompt in call["prompts"]]
        ids = [int(prompt[:-1]) for prompt in prompts]
        assert [x for x, at in zip(log.frame.prompt.tolist(), here, strict=True) if at] == ids
        assert log.frame.length.to_numpy()[here].tolist() == [n for call in calls for n in call["lengths"]]
        counts = Counter(ids)
        assert log.frame.groupby(["step", "prompt"]).prompt.transform("size").to_numpy()[here].tolist() == [
            counts[x] for x in ids
        ]
        assert len(ids) >= BATCH if name == "reinforce_ada" else len(ids) == BATCH
        sizes.append([len(call["prompts"]) for call in calls])
        if step == 0 and name in ("thompson", "odd"):  # nothing is known yet: the same draw each time
            assert len(set(counts.values())) > 1
    assert set(log.frame.step.tolist()) == set(range(STEPS))
    if name == "odd":
        assert sizes == [[5, 1, 7, 3]] * STEPS
    if name in ("ar3po", "reinforce_ada"):
        assert max(len(each) for each in sizes) > 1
    if name == "adaptive":
        assert 1 in log.frame.groupby(["step", "prompt"]).prompt.transform("size").to_numpy()


@needs_vllm
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["trees", "trees of thompson"])
def test_branches_have_the_log_probabilities_with_which_they_were_sampled(seen, mode, name):
    """Also where a rollout was generated in several calls, of which later ones begin with its first tokens."""
    run = seen[mode][name]
    assert max(gap for call in run["calls"] for gap in call["gaps"]) < NEAR
    for batch, calls in zip(run["batches"], by_step(run), strict=True):
        assert len(batch["prompts"]) == BATCH
        assert max(batch["gaps"]) < NEAR
        assert len(calls) > 1
        assert len(calls[0]["prompts"]) < BATCH  # the roots
        assert {call["told"] for call in calls} == {1}


@needs_vllm
def test_a_shared_prefix_comes_from_the_cache_of_vllm(seen):
    """A branch begins after one of vLLM's blocks of 32 tokens; all that other runs share is shorter than a block."""
    assert seen["colocate"]["trees"]["hits"] >= 32
    assert seen["colocate"]["trees of thompson"]["hits"] >= 32
    assert seen["colocate"]["uniform"]["hits"] == 0


@needs_vllm
@pytest.mark.parametrize("mode", MODES)
def test_limits_of_lengths_hold_in_vllm(seen, mode):
    """In the process each row stops at its own cap; the server stops at the largest, and the rest is dropped."""
    run, below, reached = seen[mode]["lengths"], 0, 0
    assert max(gap for call in run["calls"] for gap in call["gaps"]) < NEAR
    for limit, calls, batch in zip((8, 6, 4), by_step(run), run["batches"], strict=True):
        (call,) = calls
        limits = np.minimum(call["caps"], limit)
        below += int((limits < limit).sum())
        assert (np.array(call["lengths"]) <= (limits if mode == "colocate" else limits.max())).all()
        of_prompt = dict(zip(call["prompts"], limits.tolist(), strict=True))
        lengths = [len(each) for each in batch["completions"]]
        assert all(length <= of_prompt[name] for name, length in zip(batch["prompts"], lengths, strict=True))
        reached += sum(length == of_prompt[name] for name, length in zip(batch["prompts"], lengths, strict=True))
        assert max(batch["gaps"]) < NEAR
    assert below > 0
    assert reached > 0  # of 48 completions; which ones end by themselves is vLLM's chance


@needs_vllm
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "budgets"), [("thoughts", {3}), ("truncated", {2, 4})])
def test_thought_and_answer_have_the_log_probabilities_with_which_they_were_sampled(seen, mode, name, budgets):
    """Also after the appended end, whose token is masked."""
    run, end, forced = seen[mode][name], 10, Counter()
    assert max(gap for call in run["calls"] for gap in call["gaps"]) < NEAR
    for batch, calls in zip(run["batches"], by_step(run), strict=True):
        assert len(calls) == 2
        assert max(batch["gaps"]) < NEAR
        for ids, own in zip(batch["completions"], batch["own"], strict=True):
            assert own.count(False) <= 1
            if False in own:
                at = own.index(False)
                assert ids[at] == end
                assert len(ids) <= at + 3
                forced[at] += 1
    assert forced.keys() == budgets
    assert forced.total() > STEPS


def samples(call):
    """The completions of each prompt of a call, in order."""
    made = {}
    for prompt, completion in zip(call["prompts"], call["completions"], strict=True):
        made.setdefault(prompt, []).append(completion)
    return made


def of_one_step(calls):
    """The completions of each prompt in all calls of a step, in order."""
    made = {}
    for call in calls:
        for prompt, completions in samples(call).items():
            made.setdefault(prompt, []).extend(completions)
    return made


@needs_vllm
def test_a_seed_gives_the_rollouts_of_a_prompt_the_samples_of_one_request(seen):
    """Before the weights change: TRL's server takes n samples of a request; here each row is a request of its own."""
    runs = seen["server"]
    expected = of_one_step(by_step(runs["plain, seeded"])[0])
    for name in ("uniform, seeded", "odd, seeded"):  # they have the same prompts
        compared = 0
        for prompt, texts in of_one_step(by_step(runs[name])[0]).items():
            common = min(len(texts), len(expected[prompt]))
            assert texts[:common] == expected[prompt][:common]
            compared = max(compared, len({*map(tuple, texts[:common])}))
        assert compared == SIZE


@needs_vllm
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["thompson, seeded", "odd, seeded", "trees, seeded", "thoughts, seeded"])
def test_with_a_seed_rollouts_of_a_prompt_are_not_one_text(seen, mode, name):
    """Few agree by chance, such as those that end at once. In the process TRL alone repeats one text."""
    repeated = [of_one_step(calls) for calls in by_step(seen["colocate"]["plain, seeded"])]
    assert all(len({*map(tuple, texts)}) == 1 for step in repeated for texts in step.values())
    texts, different = 0, 0
    for calls in by_step(seen[mode][name]):
        made = of_one_step(calls) if name == "odd, seeded" else samples(calls[0])  # of trees, the roots
        texts += sum(map(len, made.values()))
        different += sum(len({*map(tuple, each)}) for each in made.values())
        assert max(map(len, made.values())) > 1
    assert different > 0.7 * texts


def test_continuous_batching_of_transformers_answers_each_prompt(build):
    """At this low temperature a prompt has one answer, the most probable one."""
    config = {"num_blocks": 16, "max_batch_tokens": 64, "page_size": 32}
    trainer = build(
        use_transformers_continuous_batching=True,
        transformers_continuous_batching_config=config,
        temperature=1e-4,
        max_steps=2,
        max_completion_length=3,
    )
    attach(trainer, ba.thompson(seed=1))
    calls = []
    generate = trainer._generate_single_turn

    def recording(prompt_ids, *more):
        output = generate(prompt_ids, *more)
        with torch.no_grad():
            for prompt, completion in zip(prompt_ids, output[0], strict=True):
                logits = trainer.model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
                best, chosen = logits.max(dim=1).values, logits.gather(1, torch.tensor(completion)[:, None])[:, 0]
                assert (best - chosen).max() < 1e-2, (prompt, completion)
        calls.append([tuple(prompt) for prompt in prompt_ids])
        return output

    trainer._generate_single_turn = recording
    trainer.train()
    assert [len(prompts) for prompts in calls] == [16, 16]
    assert len(set(Counter(calls[0]).values())) > 1
