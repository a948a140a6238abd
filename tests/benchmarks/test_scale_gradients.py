"""The gradients of policies' steps: projected products, the world that stands still, and a table of all policies."""

import gradients  # in benchmarks/scale
import numpy as np
import pytest
import torch
from gradients import SAMPLES, Sketches, World
from lighter import freeze_lower
from transformers import AutoModelForCausalLM

from budgetalloc.cli.testbed import skills


@pytest.fixture(scope="module")
def sampled(tmp_path_factory, tiny_task):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("gradients") / "tiny.npz"
    gradients.sample(skills.WEIGHTS, out, tiny_task, prompts=24, tokens=skills.ANSWER_LENGTH + 1)
    return out


def test_sketches_keep_the_products_of_the_gradients_of_the_trained_layers():
    model = AutoModelForCausalLM.from_pretrained(skills.WEIGHTS, dtype=torch.float32)
    freeze_lower(model, 0.5)
    torch.manual_seed(0)
    ids = torch.randint(5, 20, (12, 9))
    layers = [x for x in model.model.layers.modules() if isinstance(x, torch.nn.Linear) and x.weight.requires_grad]

    def losses():
        return model(input_ids=ids).logits.log_softmax(-1).amax(-1).sum(1)

    weights = [layer.weight for layer in layers]
    of_row = [torch.autograd.grad(loss, weights, retain_graph=True) for loss in losses()]
    exact = torch.stack([torch.cat([part.flatten() for part in parts]) for parts in of_row])
    products = []
    for seed in range(8):
        sketches = Sketches(model, seed)
        losses().sum().backward()
        part = sketches.take()
        assert part.shape[0] == 12
        products.append(part @ part.T)
        for layer in layers:
            layer._forward_hooks.clear()
    wanted = (exact @ exact.T).numpy()
    assert np.linalg.norm(np.mean(products, axis=0) - wanted) < 0.1 * np.linalg.norm(wanted)


def test_a_steps_gradient_is_the_advantages_times_gradients_of_its_rollouts():
    rng = np.random.default_rng(0)
    gradient_PSD, rewards_PS = rng.normal(size=(5, 16, 7)), rng.integers(0, 2, (5, 16)).astype(float)
    flat_RD, lengths_PS = gradient_PSD.reshape(80, 7), rng.integers(1, 6, (5, 16))
    world = World(rewards_PS, lengths_PS, flat_RD @ flat_RD.T, np.array(["a"] * 5))
    centred_PSD = gradient_PSD - gradient_PSD.mean(axis=1, keepdims=True)
    at_R, advantages_R = np.array([3, 20, 21, 70]), np.array([1.0, -0.5, 2.0, 0.3])
    step_D = advantages_R @ centred_PSD.reshape(80, 7)[at_R] / lengths_PS.ravel()[at_R].sum()
    rate_PD = (rewards_PS[..., None] * centred_PSD).mean(axis=1)  # the gradient of each prompt's success rate
    slope_P = 8 * (1 - rewards_PS.mean(axis=1)) ** 7
    towards = {"success": 0.0, "pass@8": 0.0}
    for at, advantage in zip(at_R, advantages_R, strict=True):
        part_D = advantage * centred_PSD.reshape(80, 7)[at] / lengths_PS.ravel()[at_R].sum()
        others = np.arange(5) != at // 16
        towards["success"] += float(part_D @ rate_PD[others].sum(axis=0) / 4)
        towards["pass@8"] += float(part_D @ (slope_P[:, None] * rate_PD)[others].sum(axis=0) / 4)
    got, square = world.gradient(at_R, advantages_R)
    assert got == pytest.approx(towards, rel=1e-5)
    assert square == pytest.approx(float(step_D @ step_D), rel=1e-5)


def test_all_policies_are_compared_with_uniform_groups_of_8(sampled, capsys, monkeypatch):
    arrays = np.load(sampled)
    assert arrays["rewards_PS"].shape == (24, SAMPLES)
    assert 0 < arrays["rewards_PS"].mean() < 1
    assert arrays["lengths_PS"].min() >= 1
    monkeypatch.setattr(gradients, "STEP", 32)
    monkeypatch.setattr(gradients, "PARTS", ((0, 2), (2, 4)))
    gradients.main(["compare", str(sampled), "--seeds", "2"])
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("| policy | success, steps 1 to 2 | success, steps 3 to 4 | pass@8,")
    assert [row.split("`")[1] for row in rows] == [x for x in gradients.POLICIES if x != "sampled_seconds"]
    assert next(row for row in rows if "`uniform8`" in row) == "| `uniform8` | 1.00 | 1.00 | 1.00 | 1.00 |"
    assert len({row.split("`")[2] for row in rows}) >= 6  # they differ
