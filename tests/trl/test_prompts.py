"""Several rows with one prompt, on TRL's real trainer."""

from collections import Counter

import pytest
from conftest import low_digit, trained
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback


def answers(texts=6, each=4):
    """Several rows with the same prompt, each with an answer of its own, in an order that mixes them."""
    return Dataset.from_list(
        [{"prompt": f"{text:03d}=", "answer": 10 * text + k} for k in range(each) for text in range(texts)]
    )


def seen_answers(build, policy, data, steps=6, **options):
    """How many rollouts of each answer a training scored; and the answers of each prompt in each step."""
    seen, by_step = Counter(), []

    def reward(prompts, completions, answer, **_):
        assert [int(prompt[:3]) for prompt in prompts] == [each // 10 for each in answer]
        seen.update(answer)
        by_step.append(Counter(answer))
        return low_digit(completions)

    trainer = build(data, reward, max_steps=steps)
    if policy is None:
        trainer.train()
    else:
        trained(trainer, policy, **options)
    return seen, by_step


@pytest.mark.parametrize("candidates", [1, 2, "all"])
def test_each_row_of_a_prompt_is_rolled_out(build, caplog, candidates):
    seen, by_step = seen_answers(build, ba.knapsack(), answers(), 12, candidates=candidates, floor=2)
    assert len(seen) == 24
    for step in by_step:
        for text in range(6):
            counts = [step[10 * text + k] for k in range(4) if candidates != 1 or step[10 * text + k]]
            assert max(counts, default=0) - min(counts, default=0) <= 1  # in turn
    assert caplog.text.count("6 prompts of the train dataset have several rows, 24 of its 24 rows") == 1


@pytest.mark.parametrize("policy", [ba.knapsack, ba.adaptive])  # uniform() trains as TRL, unobserved
def test_one_id_with_two_prompts_is_refused_with_both(build, policy):
    data = Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n % 12} for n in range(24)])
    with pytest.raises(ba.InputError, match=r"prompt_id=0 names two.*'000=' in row 0 and '012=' in row 12.*templates"):
        AdaptiveGRPOCallback(build(data), policy())
    named = data.rename_column("prompt_id", "template")
    with pytest.raises(ba.InputError, match=r"template=0 names two prompts"):
        AdaptiveGRPOCallback(build(named), policy(), prompt_id="template")
    AdaptiveGRPOCallback(build(named), policy())  # by the hash of the text
