"""Run by test_runs.py in an environment with verl: trains with verl's own trainer and with a policy attached.

    python runs.py FOLDER [NAME...]

The runs of `RUNS` share the workers of the first one, whose weights are loaded anew for each; the last one is killed
while it saves. `resumed`, `ahead` and `two_workers` are verl's own `TaskRunnerV1`. Writes FOLDER/seen.json: the metrics
that verl's logger got, by run and step. Ledgers and checkpoints lie in FOLDER/NAME.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENT = {
    "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # it watches the whole machine, and kills our workers for its neighbours
    "RAY_worker_niceness": "0",  # workers as nice as this process, which may be as nice as can be already
}
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz+= "
SHARES = [0, 1, 4, 12, 20, 30, 36, 39]  # of the characters: how easy a prompt is
BATCH, SIZE = 8, 4  # prompts of a step, and verl's rollout.n


def attached(policy="uniform", mode="budgetalloc", **more):
    """The overrides that attach a policy."""
    more = {"policy": policy, **more}
    return [f"trainer.v1.trainer_mode={mode}", *(f"+budgetalloc.{key}={value}" for key, value in more.items())]


def data(name):
    return f"data.train_files=FOLDER/{name}.parquet"


STEPS = "trainer.total_training_steps={}".format
SAVES = ["trainer.save_freq=2", STEPS(6)]
PENALTY = ["algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.kl_coef=0.5"]
RUNS = {
    "plain": [STEPS(2), "trainer.test_freq=2"],
    "uniform": [*attached(), STEPS(2), "trainer.test_freq=2"],
    "uniform_own": [*attached(baseline="group"), STEPS(2)],
    "thompson": [*attached("thompson", candidates=1, floor=0), STEPS(4)],
    "adaptive": [*attached("adaptive"), STEPS(4)],
    "knapsack": [*attached("knapsack", candidates=2), STEPS(3)],
    "spo": [*attached("spo"), STEPS(2)],
    "pods": [*attached("pods"), STEPS(2)],
    "penalty": [*attached("adaptive"), *PENALTY, STEPS(2)],
    "graded": [*attached("adaptive", success="acc"), data("graded"), STEPS(3)],
    "flaky": [*attached("adaptive"), data("flaky"), STEPS(3)],
    "answers": [*attached("adaptive", prompt_id="task_name"), data("answers"), STEPS(2)],
    "whole": [*attached("adaptive"), *SAVES],
    "killed": [*attached("adaptive"), *SAVES],
}
RESUMED = [*attached("adaptive"), *SAVES, "trainer.default_local_dir=FOLDER/killed", "trainer.resume_mode=auto"]
AHEAD = [*attached("adaptive", mode="budgetalloc_async"), STEPS(4)]
TWO_WORKERS = [
    *attached("adaptive"),
    STEPS(2),
    "trainer.n_gpus_per_node=2",
    "actor_rollout_ref.rollout.n_gpus_per_node=2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
]


def make_data(folder):
    """A tiny Llama, a tokenizer and data sets from scratch; rows have no `extra_info.index`, as verl allows."""
    import pandas as pd
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {c: at + 3 for at, c in enumerate(CHARACTERS)}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    raw.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    messages, end = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}",
        "{% if add_generation_prompt %}={% endif %}",
    )
    tokenizer.chat_template = messages + end
    tokenizer.save_pretrained(folder / "model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
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
        }

    sets = {source: [row(at, source) for at in range(16)] for source in ("exact", "graded", "flaky")}
    sets["answers"] = [{**row(at, text=f"q{at % 4}"), "task_name": f"task_{at % 4}"} for at in range(16)]
    for name, rows in sets.items():
        pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
    pd.DataFrame(sets["exact"][:4]).to_parquet(folder / "val.parquet")


def configuration(folder, name, overrides):
    from hydra import compose, initialize_config_module

    base = [
        "trainer.device=cpu trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.logger=[console]",
        f"trainer.val_before_train=False trainer.total_epochs=99 trainer.default_local_dir={folder}/{name}",
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
    overrides = [text.replace("FOLDER", str(folder)) for text in overrides]
    if any(text.startswith("+budgetalloc.") for text in overrides):
        run = "killed" if name == "resumed" else name
        overrides.append(f"+budgetalloc.ledger={folder}/{run}/ledger.jsonl")
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", [word for line in base for word in line.split()] + overrides)


def recipe():
    """What integrations/verl/gsm8k.yaml attaches, as verl reads it."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic

    from budgetalloc.verl.settings import Settings
    from budgetalloc.verl.support import check_config

    with initialize_config_dir(str(HERE.parents[1] / "integrations" / "verl"), version_base=None):
        config = compose("gsm8k")
    settings = Settings.read(OmegaConf.to_container(config.budgetalloc), deviation=True, penalty=False)
    check_config(config, settings.policy, settings.options, need_critic(config))
    rollouts = config.data.train_batch_size * config.actor_rollout_ref.rollout.n
    return {"mode": config.trainer.v1.trainer_mode, "policy": settings.policy.name, "rollouts": rollouts}


def listen(trainer, logged):
    """Keeps what verl's logger gets, and polls more often: verl's 2 s are for rollouts that take minutes."""
    from verl.utils.tracking import Tracking

    trainer.replay_buffer.poll_interval = 0.05
    log = Tracking.log

    def keep(self, data, step):
        numbers = {key: float(value) for key, value in data.items() if hasattr(value, "__float__")}
        if getattr(trainer, "batch", None) is not None and trainer.options.baseline is not None:
            advantages_R = trainer.options.advantages(trainer.batch)
            numbers["advantages"] = {"max": float(advantages_R.max()), "min": float(advantages_R.min())}
        logged.append({"step": step, **numbers})
        log(self, data=data, step=step)

    Tracking.log = keep
    return lambda: setattr(Tracking, "log", log)


class Several:
    """Runs that share the workers of the first."""

    def run(self, folder, configs):
        import transfer_queue as tq
        from omegaconf import OmegaConf
        from verl.trainer.ppo.v1 import AgentLoopManagerTQ, get_trainer_cls

        first = manager = None
        for name, config in configs.items():
            began = time.time()
            config.transfer_queue.enable = True
            OmegaConf.resolve(config)
            kind = get_trainer_cls(config.trainer.v1.trainer_mode)
            if first is None:
                tq.init(config.transfer_queue)
                trainer = first = kind(config=config)
                trainer.init()
                handles = {"llm_client": trainer.get_llm_client(), "teacher_client": trainer.get_teacher_client()}
                manager = AgentLoopManagerTQ.create(
                    config=config, reward_loop_worker_handles=trainer.get_reward_handles(), **handles
                )
                trainer.config.trainer.default_local_dir = f"{folder}/start"
                trainer._save_checkpoint()
            else:
                trainer = kind(config=config)
                vars(trainer).update({key: value for key, value in vars(first).items() if key not in vars(trainer)})
                trainer._init_dataloader()
                trainer._init_dump_executor()
                config.trainer.resume_mode = "resume_path"
                config.trainer.resume_from_path = f"{folder}/start/global_step_0"
                trainer._load_checkpoint()
                trainer.on_init_end()
            if name == "penalty":
                trainer._compute_ref_log_prob = surer_reference
            if name == "killed":
                die_while_saving(trainer, step=4)
            logged = []
            restore = listen(trainer, logged)
            trainer.fit(manager)
            restore()
            put(folder, name, logged)
            print(f"{name}: {time.time() - began:.1f} s", flush=True)


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


def alone(folder, name, config):
    """verl's own runner, in this Ray."""
    import ray
    from verl.trainer.main_ppo import TaskRunnerV1

    class Listening(TaskRunnerV1.__ray_metadata__.modified_class):
        def init_agent_loop_manager(self):
            super().init_agent_loop_manager()
            self.logged = []
            listen(self.trainer, self.logged)

        def run(self, config):
            super().run(config)
            return self.logged

    began = time.time()
    put(folder, name, ray.get(ray.remote(num_cpus=1)(Listening).remote().run.remote(config)))
    print(f"{name}: {time.time() - began:.1f} s", flush=True)


def main():
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    os.environ.update(ENVIRONMENT)
    folder.mkdir(parents=True, exist_ok=True)
    make_data(folder)
    import ray

    began = time.time()
    put(folder, "pid", os.getpid())
    put(folder, "recipe", recipe())
    wanted = {name: RUNS[name] for name in RUNS if name in (names or RUNS)}
    configs = {name: configuration(folder, name, overrides) for name, overrides in wanted.items()}
    if configs:
        with a_ray():
            try:
                ray.get(ray.remote(num_cpus=1)(Several).remote().run.remote(str(folder), configs))
            except ray.exceptions.RayActorError:
                if "killed" not in configs:
                    raise
    for name, overrides in {"resumed": RESUMED, "ahead": AHEAD, "two_workers": TWO_WORKERS}.items():
        if name in (names or [name]):
            with a_ray():
                alone(folder, name, configuration(folder, name, overrides))
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
        runtime_env={"env_vars": {**ENVIRONMENT, "TRANSFER_QUEUE_ENABLE": "1"}},
    )
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(f"/tmp/bv{os.getpid()}", ignore_errors=True)


if __name__ == "__main__":
    main()
