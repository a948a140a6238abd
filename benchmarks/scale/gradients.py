"""How good is the gradient of a policy's step on a language model, beside that of uniform groups of 8?

    python benchmarks/scale/gradients.py sample runs/scale/short runs/scale/gradients_0.npz       # five minutes
    python benchmarks/scale/gradients.py compare runs/scale/gradients_0.npz

`sample` draws 16 completions for each of 256 prompts, and writes their rewards and the inner products of the gradients
of their log-probabilities. `compare` lets each policy allocate 128 rollouts a step to these prompts, with the library's
own beliefs and advantages. The model stands still, and a rollout is one of the sixteen of its prompt, drawn at random.

The gradient of a step is g, the sum of advantages times gradients over the tokens, as in TRL. Its efficiency is
<E[g], J>^2 / E[g^2] with J the gradient of the mean success (or pass@8) of the other prompts, relative to that of
uniform groups of 8: the gain of one step of the best length, to first order. As noise is most of E[g^2], this is the
number of uniform's rollouts that one rollout is worth.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lighter import freeze_lower, share_prefill  # beside this file
from pieces import OPTIONS, POLICIES
from questions import TASKS, Task
from transformers import AutoModelForCausalLM, AutoTokenizer

from budgetalloc.beliefs.features import Features
from budgetalloc.training.session import Session

SAMPLES = 16  # of a prompt
STEP = 128  # rollouts
PARTS = ((0, 4), (4, 16), (16, 48))  # steps that are compared together: beliefs know more in each
FOLLOWED = 8  # k of pass@k
_AT_ONCE = 4  # prompts
_SIDE = 16  # the gradient of a matrix is projected to one of 16 x 16


class Sketches:
    """Collects, for each row of a batch, the gradient of its loss by each trained linear layer, projected at random.

    The gradient of a row is the sum over tokens of the outer products of output gradients and inputs. Both factors are
    projected by random signs, which keeps inner products between gradients in expectation.
    """

    def __init__(self, model: Any, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.parts: list[torch.Tensor] = []
        for layer in model.model.layers.modules():
            if isinstance(layer, torch.nn.Linear) and layer.weight.requires_grad:
                signs = [torch.randint(2, (size, _SIDE), generator=generator) * 2.0 - 1 for size in layer.weight.shape]
                layer.register_forward_hook(self._read(*(each.to(model.device) / _SIDE**0.5 for each in signs)))

    def _read(self, out: torch.Tensor, into: torch.Tensor) -> Any:
        def forward(_: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            if output.requires_grad:
                read = inputs[0].detach() @ into
                output.register_hook(
                    lambda gradient: self.parts.append(torch.einsum("btk,btl->bkl", gradient @ out, read).flatten(1))
                )

        return forward

    def take(self) -> np.ndarray[Any, Any]:
        """The sketches since the last call, shape (B, D)."""
        taken: np.ndarray[Any, Any] = torch.cat(self.parts, dim=1).cpu().numpy()
        self.parts.clear()
        return taken


def sample(weights: Path, out: Path, task: Task, prompts: int, tokens: int, seed: int = 0, upper: float = 1.0) -> None:
    """Writes rewards, lengths and bounds (`of_head`), shape (P, S), products of gradients, shape (P S, P S), and kinds,
    shape (P,)."""
    tokenizer = AutoTokenizer.from_pretrained(weights, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    if upper < 1.0:
        freeze_lower(model, upper)
    share_prefill(model)
    sketches = Sketches(model)
    asked = task.asked(task.rows(prompts, seed, without=task.held_out(256)))
    torch.manual_seed(seed)
    rewards, lengths, bounds, sketch_R = [], [], [], []
    read_by_head: list[torch.Tensor] = []
    model.get_output_embeddings().register_forward_pre_hook(lambda _, given: read_by_head.append(given[0].detach()))
    for at in range(0, prompts, _AT_ONCE):
        rows = [row for row in asked[at : at + _AT_ONCE] for _ in range(SAMPLES)]
        read = tokenizer([row["prompt"] for row in rows], return_tensors="pt", padding=True).to(model.device)
        with torch.no_grad():
            ids = model.generate(
                **read, do_sample=True, top_k=0, max_new_tokens=tokens, pad_token_id=tokenizer.pad_token_id
            )
        said = ids[:, read["input_ids"].shape[1] :]
        ended = (said == tokenizer.eos_token_id).int().cumsum(1)
        mask = (ended - (said == tokenizer.eos_token_id).int() == 0).int()  # up to the end of text, and with it
        both = torch.cat([read["attention_mask"], mask], dim=1)
        read_by_head.clear()
        logits = model(input_ids=ids, attention_mask=both, logits_to_keep=said.shape[1] + 1).logits[:, :-1]
        logps = logits.log_softmax(-1).gather(-1, said[..., None])[..., 0]
        bounds += of_head(logits.detach(), said, read_by_head[0][:, :-1], mask).tolist()
        (logps * mask).sum().backward()
        model.zero_grad()
        sketch_R.append(sketches.take())
        lengths += mask.sum(1).tolist()
        texts = tokenizer.batch_decode(said, skip_special_tokens=True)
        rewards += task.reward(completions=texts, prompt_id=[row["prompt_id"] for row in rows])
    all_RD = np.concatenate(sketch_R)
    np.savez(
        out,
        rewards_PS=np.reshape(rewards, (prompts, SAMPLES)),
        lengths_PS=np.reshape(lengths, (prompts, SAMPLES)),
        bounds_PS=np.reshape(bounds, (prompts, SAMPLES)),
        products_RR=all_RD @ all_RD.T,
        kinds_P=[row["kind"] for row in asked],
    )


def of_head(logits_BTV: torch.Tensor, said_BT: torch.Tensor, read_BTH: torch.Tensor, mask_BT: Any) -> torch.Tensor:
    """The sum over tokens of the squared gradient of a token's log-probability by the head, shape (B,): of
    |onehot - softmax|^2 |h|^2, with h what the head reads. It needs no backward pass.

    >>> logits, read = torch.zeros(1, 2, 2), torch.tensor([[[1.0, 1.0], [3.0, 0.0]]])
    >>> of_head(logits, torch.tensor([[0, 1]]), read, torch.tensor([[1, 1]]))  # 0.5 * 2 + 0.5 * 9
    tensor([5.5000])
    """
    chance_BTV = logits_BTV.softmax(-1)
    said = chance_BTV.gather(-1, said_BT[..., None])[..., 0]
    apart_BT = (chance_BTV**2).sum(-1) - 2 * said + 1
    return (apart_BT * (read_BTH**2).sum(-1) * mask_BT).sum(1)


class World:
    """A model that stands still: `SAMPLES` rollouts of each prompt, from which every step draws its own.

    Args:
        rewards_PS, lengths_PS, products_RR, kinds_P, bounds_PS: As `sample` writes them.
    """

    def __init__(self, rewards_PS: Any, lengths_PS: Any, products_RR: Any, kinds_P: Any, bounds_PS: Any = None) -> None:
        self.rewards_PS, self.lengths_PS, self.kinds_P = rewards_PS, lengths_PS, kinds_P
        self.bounds_PS = bounds_PS
        prompts, samples = rewards_PS.shape
        # The gradient of a prompt's log-probabilities has the mean 0; that of its sixteen rollouts is subtracted.
        inner = products_RR.astype(np.float64).reshape(prompts, samples, prompts, samples)
        inner = inner - inner.mean(axis=1, keepdims=True)
        inner = inner - inner.mean(axis=3, keepdims=True)
        self.products_RR = inner.reshape(prompts * samples, -1).astype(np.float32)
        success_P = rewards_PS.mean(axis=1)
        slopes = {"success": np.ones(prompts), f"pass@{FOLLOWED}": FOLLOWED * (1 - success_P) ** (FOLLOWED - 1)}
        # <gradient of a rollout, J of the other prompts>; the gradient of a rate is the mean reward times gradient.
        self.towards_R = {}
        for name, slope_P in slopes.items():
            weights_PS = rewards_PS * slope_P[:, None] / samples / (prompts - 1)
            own_PS = np.einsum("psqt,qt->psq", inner, weights_PS)
            own_PS[np.arange(prompts), :, np.arange(prompts)] = 0.0
            self.towards_R[name] = own_PS.sum(axis=2).ravel()

    def gradient(self, at_R: Any, advantages_R: Any) -> tuple[dict[str, float], float]:
        """<g, J> for each J, and g^2, of a step with these rollouts, numbered by prompt and sample."""
        weights_R = advantages_R / self.lengths_PS.ravel()[at_R].sum()
        towards = {name: float(weights_R @ x_R[at_R]) for name, x_R in self.towards_R.items()}
        return towards, float(weights_R @ self.products_RR[np.ix_(at_R, at_R)] @ weights_R)


def steps(world: World, name: str, seed: int, count: int) -> Iterator[tuple[dict[str, float], float]]:
    """The gradient of each step of a policy, as `World.gradient`."""
    build, group = POLICIES[name]
    policy, prompts = build(seed), len(world.kinds_P)
    if name == "adaptive_kind":
        kinds = sorted(set(world.kinds_P))
        policy = policy.with_features(Features(range(prompts), np.equal.outer(world.kinds_P, kinds)))
    session = Session(policy, ["reward"], pool=range(prompts), trainer_scale="group", quiet=True)
    rng = np.random.default_rng([seed, 1])
    for _ in range(count):
        session.begin(rng.permutation(prompts)[: STEP // group].repeat(group).tolist(), STEP, group)
        drawn: list[Any] = []
        turn_P: dict[Any, Iterator[int]] = defaultdict(lambda: iter(rng.permutation(SAMPLES)))  # each once in a step
        while ids_R := session.request():
            at_R = np.array([int(x) * SAMPLES + next(turn_P[x]) for x in ids_R])
            session.observe(ids_R, world.rewards_PS.ravel()[at_R], world.lengths_PS.ravel()[at_R])
            drawn.append(at_R)
        yield world.gradient(np.concatenate(drawn), session.end().advantages_R)


def efficiencies(worlds: Sequence[World], name: str, seeds: Sequence[int]) -> dict[str, list[float]]:
    """<E[g], J>^2 / E[g^2] in each of `PARTS`, for each J; negative where the gradient leads away from J."""
    last = PARTS[-1][1]
    runs = [list(steps(world, name, seed, last)) for world in worlds for seed in seeds]
    found: dict[str, list[float]] = {target: [] for target in worlds[0].towards_R}
    for first, end in PARTS:
        part = [step for run in runs for step in run[first:end]]
        square = float(np.mean([square for _, square in part]))
        for target, values in found.items():
            signal = float(np.mean([towards[target] for towards, _ in part]))
            values.append(signal * abs(signal) / square)
    return found


def compare(worlds: Sequence[World], policies: Sequence[str], seeds: Sequence[int]) -> Iterator[str]:
    """The lines of the table, over all worlds."""
    parts = [f"steps {first + 1} to {end}" for first, end in PARTS]
    head = [f"{target}, {part}" for target in worlds[0].towards_R for part in parts]
    yield f"| policy | {' | '.join(head)} |"
    yield "|---" * (1 + len(head)) + "|"
    plain = efficiencies(worlds, "uniform8", seeds)
    for name in policies:
        own = efficiencies(worlds, name, seeds)
        cells = [f"{x / base:.2f}" for target in own for x, base in zip(own[target], plain[target], strict=True)]
        yield f"| `{name}` | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    drawing = actions.add_parser("sample")
    drawing.add_argument("model", type=Path)
    drawing.add_argument("out", type=Path)
    drawing.add_argument("--prompts", type=int, default=256)
    drawing.add_argument("--seed", type=int, default=0, help="which prompts and completions")
    drawing.add_argument("--upper", type=float, default=1.0, help="share of the layers that is trained, as in run.py")
    drawing.add_argument("--tokens", type=int, default=6, help="longest completion")
    comparing = actions.add_parser("compare")
    comparing.add_argument("sampled", nargs="+", type=Path, help="files that `sample` wrote with several seeds")
    comparing.add_argument("--policy", action="append", choices=POLICIES, help="default: all without costs")
    comparing.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    if args.action == "sample":
        sample(args.model, args.out, TASKS["short"], args.prompts, args.tokens, args.seed, args.upper)
    else:
        worlds = [World(**np.load(path)) for path in args.sampled]
        policies = args.policy or [name for name in POLICIES if "cost" not in OPTIONS.get(name, {})]
        for line in compare(worlds, policies, range(args.seeds)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
