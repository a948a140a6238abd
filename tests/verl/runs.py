"""Run by test_runs.py in an environment with verl: trains with verl's own trainer and with a policy attached.

    python runs.py FOLDER [NAME...]

Starting verl costs most, so that the runs of `ONE` share the workers of the first, which verl's own `TaskRunnerV1`
starts and runs, and so do those of `TWO`, with two workers; weights are loaded anew for each run but those of `KINDS`.
A run that is killed is another process with the same workers. Writes FOLDER/seen.json: the metrics that verl's logger
got, by run and step. Ledgers and checkpoints lie in FOLDER/NAME.
"""

import contextlib
import copy
import itertools
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {
    "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "trl"), str(HERE.parents[1])]),
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFER_QUEUE_ENABLE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # it watches the whole machine, and kills our workers for its neighbours
    "RAY_worker_niceness": "0",  # workers as nice as this process, which may be as nice as can be already
}
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz+= "
SHARES = [0, 1, 4, 12, 20, 30, 36, 39]  # of the characters: how easy a prompt is
BATCH, SIZE = 8, 4  # prompts of a step, and verl's rollout.n


def attached(policy="uniform", mode="budgetalloc", **more):
    """The overrides that attach a policy."""
    # without fallback, because the pools are small
    more = {"policy": policy, "metrics": "all", "fallback": "false", **more}
    return [f"trainer.v1.trainer_mode={mode}", *(f"+budgetalloc.{key}={value}" for key, value in more.items())]


def data(name):
    return f"data.train_files=FOLDER/{name}.parquet"


STEPS = "trainer.total_training_steps={}".format
TESTED = "trainer.test_freq={}".format
PENALTY = ["algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.kl_coef=0.5"]
EPOCH = ["trainer.total_epochs=1", "trainer.total_training_steps=null"]
QUOTAS = {"domain": "subject", "quotas": "{math: [0.5, 0.625], code: [0.0, 0.25]}"}
PACING = "{name: phases, rollouts: 64, steps: 2, quantum: 8, parts: [[1, 1.0], [1, 3.0]]}"  # 16, then 48
KILLED = ["trainer.save_freq=1", STEPS(4)]
AHEAD = [
    *attached("adaptive", mode="budgetalloc_async"),
    *[STEPS(4), TESTED(2), "trainer.v1.colocate_async.num_warmup_batches=0.5"],
    "actor_rollout_ref.actor.ppo_mini_batch_size=16",  # the rows of a batch vary: all in one
]
LATE = [
    *attached("adaptive", mode="budgetalloc_async", straggler_timeout=3),
    *["trainer.v1.colocate_async.num_warmup_batches=1", STEPS(3), data("flaky")],
    "actor_rollout_ref.actor.ppo_mini_batch_size=16",
]
GROW = attached(
    "{name: budgetalloc.policies.growing, policy: uniform, most: 8}", candidates="all", floor=0, baseline="posterior"
)
KINDS = ["sampled", "reinforce_pp", "sgpo", "pvpo", "keep_mixed"]
ONE = {
    "plain": [STEPS(2), TESTED(2)],
    "uniform": [*attached(), STEPS(2), TESTED(2)],
    "uniform_own": [*attached(baseline="group"), STEPS(1)],
    "small": [*attached("adaptive", fallback="true"), STEPS(2)],
    "thompson": [*attached("thompson", candidates=1, floor=0), STEPS(3)],
    "knapsack": [*attached("knapsack", candidates="all", **QUOTAS), STEPS(3)],
    "paced": [*attached("adaptive", pacing=PACING), STEPS(2)],
    "spo": [*attached("spo"), *EPOCH],
    "pods": [*attached("pods"), STEPS(1)],
    "penalty": [*attached("adaptive"), *PENALTY, STEPS(1)],
    "graded": [*attached("adaptive", success="acc", prompt_id="task_name", **QUOTAS), data("graded"), STEPS(2)],
    "features": [
        *attached("adaptive", features="[text, subject, run:FOLDER/old.csv]"),
        STEPS(2),
        "trainer.save_freq=2",
    ],
    "agents": [
        *attached("adaptive", cost="{tokens: 1, turns: 50}", cost_per_step=4000, shadow="sampled"),
        *["+budgetalloc.domain=subject", "+budgetalloc.mixture=learn", STEPS(2), "trainer.save_freq=2"],
    ],
    "flaky": [*attached("adaptive"), data("flaky"), STEPS(2)],
    "whole": [*attached("adaptive"), STEPS(4), TESTED(4)],
    "killed": [*attached("adaptive"), *KILLED],
    "resumed": [*attached("adaptive"), *KILLED, "trainer.resume_mode=auto"],
    "second_round": [*attached("{name: budgetalloc.policies.sequential, policy: adaptive}"), STEPS(2)],
    "own_batch": [*attached("{name: hora, pilot: 2}", candidates=1, floor=2), data("graded"), STEPS(2)],
    "reinforce_ada": [
        *attached("{name: reinforce_ada, group: 2, more: 2, stages: 3}", candidates="all", floor=0),
        STEPS(2),
    ],
    "grow": [*GROW, STEPS(4)],
    "grow_killed": [*GROW, *KILLED],
    "grow_resumed": [*GROW, *KILLED, "trainer.resume_mode=auto"],
    "ahead_one": [*AHEAD, STEPS(2)],
    "late": LATE,
    **{name: [*attached(name), STEPS(1)] for name in KINDS},
}
TWO = {
    "ahead": AHEAD,
    "ahead_killed": [*AHEAD, *KILLED],
    "ahead_resumed": [*AHEAD, *KILLED, "trainer.resume_mode=auto"],
    "two_workers": [*attached("adaptive"), STEPS(2)],
}
WORKERS = [
    "trainer.n_gpus_per_node=2",
    "actor_rollout_ref.rollout.n_gpus_per_node=2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
]
SLOW = "q15"
"""A prompt whose answers come one step late where verl generates ahead: it is under way when a checkpoint is saved."""
SUBJECTS = ["math", "code", "chat", None]
SHARED = [
    *["actor_rollout_wg", "llm_server_manager", "checkpoint_manager", "reward_loop_manager", "resource_pool_manager"],
    *["teacher_model_manager", "distillation_config", "ref_in_actor", "tokenizer", "processor"],
]
"""What a trainer has of its workers, and their names."""


def make_data(folder):
    """A tiny Llama, a tokenizer and data sets from scratch; rows have no `extra_info.index`, as verl allows."""
    import pandas as pd
    from tiny_llama import character_tokenizer, tiny_config, tiny_llama

    from budgetalloc.training.prompts import prompt_hash

    symbols = ["<pad>", "<eos>", "<unk>", *CHARACTERS]
    tokenizer = character_tokenizer(symbols, unk_token="<unk>")
    messages, end = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}",
        "{% if add_generation_prompt %}={% endif %}",
    )
    tokenizer.chat_template = messages + end
    tokenizer.save_pretrained(folder / "model")
    config = tiny_config(
        len(symbols),
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        initializer_range=0.02,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    model = tiny_llama(config)
    model.generation_config.pad_token_id, model.generation_config.eos_token_id = 0, 1
    model.save_pretrained(folder / "model")

    def row(at, source="exact", text=None, share=None):
        share = SHARES[at % len(SHARES)] if share is None else share
        return {
            "data_source": source,
            "prompt": [{"role": "user", "content": text or f"q{at} {share}"}],
            "ability": "x",
            "reward_model": {"style": "rule", "ground_truth": CHARACTERS[:share]},
            "extra_info": {"split": "train"},
            "subject": SUBJECTS[at % 8 // 2],
            "task_name": f"task_{at}",
        }

    sets = {source: [row(at, source) for at in range(16)] for source in ("exact", "flaky")}
    sets["graded"] = [row(at % 8, "graded") for at in range(16)]  # two rows of each prompt
    for name, rows in sets.items():
        pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
    pd.DataFrame(sets["exact"][:4]).to_parquet(folder / "val.parquet")
    rates = [{"prompt_id": prompt_hash(row["prompt"]), "reward": int(at < 8)} for at, row in enumerate(sets["exact"])]
    pd.DataFrame(rates).assign(step=0).to_csv(folder / "old.csv", index=False)


def configurations(folder, wanted):
    """verl's configuration of each run; hydra, which is slow, composes what they share."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    base = [
        "trainer.device=cpu trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.logger=[console]",
        "trainer.val_before_train=False trainer.total_epochs=99",
        "trainer.resume_mode=disable trainer.save_freq=-1 trainer.test_freq=-1",
        "algorithm.adv_estimator=grpo",
        f"data.train_files={folder}/exact.parquet data.val_files={folder}/val.parquet data.train_batch_size={BATCH}",
        "data.max_prompt_length=16 data.max_response_length=4 data.dataloader_num_workers=0 data.seed=0",
        "data.filter_overlong_prompts=False",
        f"actor_rollout_ref.model.path={folder}/model",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.model.use_remove_padding=False actor_rollout_ref.model.enable_gradient_checkpointing=False",
        "actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
        "actor_rollout_ref.actor.use_torch_compile=False",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
        "actor_rollout_ref.actor.optim.lr=1e-2 actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32",
        f"actor_rollout_ref.rollout.name=hf actor_rollout_ref.rollout.n={SIZE}",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.calculate_log_probs=True",
        "actor_rollout_ref.rollout.n_gpus_per_node=1 actor_rollout_ref.rollout.agent.num_workers=1",
        f"reward.num_workers=1 reward.custom_reward_function.path={HERE}/reward.py",
        "reward.custom_reward_function.name=compute_score",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "transfer_queue.backend.SimpleStorage.total_storage_size=1000",
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        shared = compose("ppo_trainer", [word for line in base for word in line.split()])
    OmegaConf.set_struct(shared, False)
    for name, overrides in wanted.items():
        run = name.replace("resumed", "killed")
        own = [f"trainer.default_local_dir={folder}/{run}"]
        if any(text.startswith("+budgetalloc.") for text in overrides):
            own.append(f"budgetalloc.ledger={folder}/{run}/ledger.jsonl")
        config = copy.deepcopy(shared)
        config.merge_with_dotlist([*own, *(text.lstrip("+").replace("FOLDER", str(folder)) for text in overrides)])
        OmegaConf.set_struct(config, True)
        yield name, config


def recipe():
    """What integrations/verl/gsm8k.yaml attaches, as verl reads it."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic

    from budgetalloc.verl.compatibility import check_config
    from budgetalloc.verl.settings import Settings

    with initialize_config_dir(str(HERE.parents[1] / "integrations" / "verl"), version_base=None):
        config = compose("gsm8k")
    settings = Settings.read(OmegaConf.to_container(config.budgetalloc), deviation=True, penalty=False)
    check_config(config, settings.session.policy, settings.session.options, need_critic(config))
    rollouts = config.data.train_batch_size * config.actor_rollout_ref.rollout.n
    return {"mode": config.trainer.v1.trainer_mode, "policy": settings.session.policy.name, "rollouts": rollouts}


def listen(trainer, logged):
    """Keeps what verl's logger gets, and polls more often: verl's 2 s are for rollouts that take minutes."""
    from verl.utils.tracking import Tracking

    trainer.replay_buffer.poll_interval = 0.05
    sample = trainer.replay_buffer.sample

    def recording_sample(*args, **named):
        began = time.monotonic()
        batch, metrics = sample(*args, **named)
        if batch.partition_id == "train":
            trainer.sampled, trainer.waited = sorted(batch.keys), time.monotonic() - began
        return batch, metrics

    trainer.replay_buffer.sample = recording_sample
    log = Tracking.log

    def keep(self, data, step):
        numbers = {key: float(value) for key, value in data.items() if hasattr(value, "__float__")}
        if getattr(trainer, "batch", None) is not None and trainer.options.baseline is not None:
            advantages_R = trainer.options.advantages(trainer.batch).values_R
            numbers["advantages"] = {"max": float(advantages_R.max()), "min": float(advantages_R.min())}
        about = {"sampled": trainer.sampled, "waited": trainer.waited, "reissued": getattr(trainer, "reissued", 0)}
        logged.append({"step": step, **about, **numbers})
        if hasattr(trainer, "later"):
            logged[-1] |= {"later": [each for each in trainer.later if each["step"] == step], "rows": trainer.rows}
        log(self, data=data, step=step)

    Tracking.log = keep
    return lambda: setattr(Tracking, "log", log)


def in_turn(trainer):
    """Takes away what differs from run to run where verl generates ahead: groups are named in the order in which they
    are submitted, and a batch is of the oldest, when all groups have ended but those of the slow prompt."""
    from verl.utils import tensordict_utils

    fetch, buffer, numbers = trainer._fetch_one_gen_batch, trainer.replay_buffer, itertools.count()
    servers("hold", trainer.tokenizer.encode(SLOW, add_special_tokens=False))

    def named():
        batch = fetch()
        (prompt,) = batch["raw_prompt"]
        name = tensordict_utils.unwrap_non_tensor_data(prompt)[0]["content"].split()[0]
        tensordict_utils.assign_non_tensor_stack(batch, "uid", [f"{trainer.global_steps:03}.{next(numbers):03}.{name}"])
        return batch

    def all_ended(global_steps, partition, size, sampleable):
        under_way = buffer.pending_keys[partition] | buffer.running_keys[partition]
        return len(sampleable) >= size and all(uid.endswith(f".{SLOW}") for uid in under_way)

    def oldest(partition, sampleable, size):
        steps = dict(buffer.prompt_global_steps[partition])
        return sorted(sampleable)[:size], dict(buffer.partitions[partition]), steps

    def reissued():
        trainer.reissued = reissue()

    reissue, trainer._reissue_inflight_prompts = trainer._reissue_inflight_prompts, reissued
    trainer._fetch_one_gen_batch, buffer._has_enough_samples, buffer._select_prompt_uids = named, all_ended, oldest


def lose_one(trainer):
    """A session of the third prompt that is submitted never ends."""
    submit, numbers = trainer._submit_batch_to_rollout, itertools.count()

    def submitting(batch):
        from verl.utils import tensordict_utils

        for prompt in batch["raw_prompt"]:
            if next(numbers) == 2:
                text = tensordict_utils.unwrap_non_tensor_data(prompt)[0]["content"]
                servers("lose", trainer.tokenizer.encode(text, add_special_tokens=False))
        return submit(batch)

    trainer._submit_batch_to_rollout = submitting


def as_they_end(trainer, dies):
    """Keeps what was under way at each later request of a step, and the score and the advantage of each row that is
    trained on. In even steps the first prompt gets no answer before another group was extended. `dies` is the step in
    which the process is killed at its first later request."""
    import transfer_queue as tq
    from verl.utils import tensordict_utils

    submit, trainer.later, begun = trainer._submit_batch_to_rollout, [], [0]

    def submitted(batch):
        step, uids = trainer.global_steps, list(batch["uid"])
        if begun[0] == step:
            tags, groups = tq.kv_list("train")["train"], trainer._groups
            under_way = [uid for uid in groups.running if tags.get(uid, {}).get("status") in ("pending", "running")]
            again = sum(groups.requests()[groups.prompts[uid]] > 1 for uid in uids)
            trainer.later.append({"step": step, "under_way": len(under_way), "extended": again, "groups": len(uids)})
        elif step % 2 == 0:
            text = tensordict_utils.unwrap_non_tensor_data(batch["raw_prompt"][0])[0]["content"]
            servers("hold", trainer.tokenizer.encode(text, add_special_tokens=False))
        submit(batch)
        if begun[0] == step:
            if again:
                servers("hold", [])
            if step == dies:
                os.kill(os.getpid(), signal.SIGKILL)
        begun[0] = step

    def updated(batch, metrics):
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
        fields = ["rm_scores", "advantages", "response_mask"]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
        score, advantage, mask = ([row.float() for row in data[name].unbind()] for name in fields)
        trainer.rows = [
            (float(x.sum()), float((y * z).sum() / z.sum())) for x, y, z in zip(score, advantage, mask, strict=True)
        ]
        return update(batch, metrics=metrics)

    update, trainer._update_actor = trainer._update_actor, updated
    trainer._submit_batch_to_rollout = submitted


def servers(method, *given):
    """Calls a method of all rollout servers."""
    import ray

    names = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
    ray.get([getattr(ray.get_actor(name), method).remote(*given) for name in names if name.startswith("hf_server_")])


def drain():
    """Waits for the answers under way, and forgets them: another run begins."""
    import transfer_queue as tq

    def tags():
        return (tq.kv_list("train") or {}).get("train", {}).values()

    servers("hold", [])
    while any(tag.get("status") in ("pending", "running") for tag in tags()):
        time.sleep(0.05)
    for partition, items in (tq.kv_list() or {}).items():
        if items:
            tq.kv_clear(keys=list(items), partition_id=partition)
    servers("forget")


def surer_reference(batch, metrics):
    """In the place of verl's reference model, which wants pinned memory: log-probabilities half as large."""
    import transfer_queue as tq

    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["old_log_probs"])
    data["ref_log_prob"] = data.pop("old_log_probs") * 0.5
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=data)


def die_while_saving(trainer, step):
    """Kills the process when the beliefs are in the checkpoint's folder and the weights are not."""
    save = trainer.actor_rollout_wg.save_checkpoint

    def save_or_die(path, remote, global_step, **named):
        if global_step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return save(path, remote, global_step, **named)

    trainer.actor_rollout_wg.save_checkpoint = save_or_die


def put(folder, name, logged):
    path = Path(folder) / "seen.json"
    seen = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(seen | {name: logged}, indent=1))


def train(folder, name, config, workers, manager):
    """A run with the workers of a run before."""
    from verl.trainer.ppo.v1 import get_trainer_cls

    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config=config)
    vars(trainer).update(workers)
    trainer._init_dataloader()
    trainer._init_dump_executor()
    if config.trainer.resume_mode != "auto" and name not in KINDS:
        config.trainer.resume_mode = "resume_path"
        config.trainer.resume_from_path = f"{folder}/start/global_step_0"
    trainer._load_checkpoint()
    trainer.on_init_end()
    if name == "penalty":
        trainer._compute_ref_log_prob = surer_reference
    if name.startswith("grow"):
        as_they_end(trainer, dies=3 if name.endswith("killed") else None)
    elif name.endswith("killed"):
        die_while_saving(trainer, step=3)
    if name.startswith("ahead"):
        in_turn(trainer)
    if name == "late":
        lose_one(trainer)
    logged = []
    restore = listen(trainer, logged)
    trainer.fit(manager)
    restore()
    return logged


class Doomed:
    """A process that trains with the workers of another one, and is killed."""

    def run(self, *given):
        import transfer_queue as tq

        tq.init()
        train(*given)


def several(folder, wanted):
    """Trains all of these, the first by verl's own runner, whose workers train the others too."""
    import transfer_queue as tq

    if not (folder / "model").exists():
        make_data(folder)
        put(folder, "recipe", recipe())
    close, tq.close = tq.close, lambda: None  # which verl's runner would do after its run
    runner = None
    for name, config in configurations(folder, wanted):
        began = time.time()
        if runner is None:
            runner = first(folder, name, config)
        else:
            another(folder, name, config, runner)
        drain()
        print(f"{name}: {time.time() - began:.1f} s", flush=True)
    close()


def first(folder, name, config):
    """A run by verl's own runner, which is returned; its trainer's state at the start is FOLDER/start."""
    from verl.trainer.main_ppo import TaskRunnerV1

    runner, logged = TaskRunnerV1.__ray_metadata__.modified_class(), []
    make_manager = runner.init_agent_loop_manager

    def init_agent_loop_manager():
        make_manager()
        own = runner.config.trainer.default_local_dir
        runner.config.trainer.default_local_dir = f"{folder}/start"
        runner.trainer._save_checkpoint()
        runner.config.trainer.default_local_dir = own
        shutil.rmtree(f"{folder}/start/global_step_0/transfer_queue", ignore_errors=True)
        if name.startswith("ahead"):
            in_turn(runner.trainer)
        if name == "late":
            lose_one(runner.trainer)
        runner.restore = listen(runner.trainer, logged)

    runner.init_agent_loop_manager = init_agent_loop_manager
    runner.run(config)
    runner.restore()
    put(folder, name, logged)
    return runner


def another(folder, name, config, runner):
    """A run with the workers of the first; one that is killed is another process."""
    import ray
    from omegaconf import OmegaConf

    config.transfer_queue.enable = True
    OmegaConf.resolve(config)
    workers = {key: value for key, value in vars(runner.trainer).items() if key in SHARED}
    given = folder, name, config, workers, runner.agent_loop_manager
    if name.endswith("killed"):
        with contextlib.suppress(ray.exceptions.RayActorError):
            ray.get(ray.remote(num_cpus=1)(Doomed).remote().run.remote(*given))
    else:
        put(folder, name, train(*given))


def main():
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    os.environ.update(ENVIRONMENT)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.time()
    put(folder, "pid", os.getpid())
    for runs, workers in ((ONE, []), (TWO, WORKERS)):
        wanted = {name: workers + overrides for name, overrides in runs.items() if name in (names or runs)}
        if wanted:
            with a_ray() as ray:
                ray.get(ray.remote(num_cpus=1)(several).remote(folder, wanted))
    print(f"all: {time.time() - began:.1f} s", flush=True)


@contextlib.contextmanager
def a_ray():
    """Ray for one runner: what a killed one leaves behind is known by name until its Ray ends."""
    import ray

    ray.init(
        address="local",  # never another user's cluster
        num_cpus=16,
        num_gpus=2,
        include_dashboard=False,
        object_store_memory=200_000_000,
        _temp_dir=f"/tmp/bv{os.getpid()}",  # short: the paths of sockets are
    )
    try:
        yield ray
    finally:
        ray.shutdown()
        shutil.rmtree(f"/tmp/bv{os.getpid()}", ignore_errors=True)


if __name__ == "__main__":
    main()
