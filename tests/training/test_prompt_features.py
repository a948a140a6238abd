"""Features that a user names: texts and columns of the dataset."""

from dataclasses import replace

import pytest
from datasets import Dataset, IterableDataset

import budgetalloc as ba
from budgetalloc.training.prompt_features import features_of
from budgetalloc.training.prompts import Prompts

ROWS = [
    {"prompt": f"{word} {n}", "pass_rate": n / 10, "source": word, "other": [n]}
    for word in ("add", "sort")
    for n in range(10)
]
PROMPTS = Prompts(Dataset.from_list(ROWS))


def test_a_column_describes_the_prompts_in_their_order():
    got = features_of(PROMPTS, "source").of(PROMPTS.pool)
    assert (got[:10] == got[0]).all()
    assert (got[10:] == got[10]).all()
    assert (got[0] != got[10]).any()


def test_text_and_columns_are_joined():
    both, text = features_of(PROMPTS, ["text", "pass_rate"]), features_of(PROMPTS, "text")
    assert both.count == text.count + 1


def test_chat_messages_are_read():
    chats = [{"prompt": [{"role": "user", "content": row["prompt"]}]} for row in ROWS]
    prompts = Prompts(Dataset.from_list(chats))
    got = features_of(prompts, "text").of(prompts.pool)
    assert got == pytest.approx(features_of(PROMPTS, "text").of(PROMPTS.pool))


def test_a_prompt_with_several_rows_has_the_values_of_the_first():
    rows = [{"prompt": "a", "level": 1}, {"prompt": "b", "level": 2}, {"prompt": "a", "level": 9}]
    prompts = Prompts(Dataset.from_list(rows))
    assert features_of(prompts, "level").of(prompts.pool).tolist() == [[-1.0], [1.0]]


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("pas_rate", "no column 'pas_rate'.*pass_rate"),
        ([], "name at least one column"),
        ("other", "numbers, texts or flags"),
    ],
)
def test_bad_names_are_refused(wanted, says):
    with pytest.raises(ba.InputError, match=says):
        features_of(PROMPTS, wanted)


@pytest.mark.parametrize("wanted", [3, [3], ["text", None], {}, True])
def test_other_types_are_refused(wanted):
    with pytest.raises(ba.InputError, match="name at least one column"):
        features_of(PROMPTS, wanted)


def test_a_stream_has_no_features():
    stream = Prompts(IterableDataset.from_generator(lambda: iter(ROWS)), required=False)
    with pytest.raises(ba.UnsupportedError, match="does not list its rows"):
        features_of(stream, "text")


def test_a_policy_with_features_keeps_its_needs_and_its_pacing():
    policy = ba.adaptive(seed=2)
    policy = replace(policy, needs=replace(policy.needs, min_group=4), plan=(8,))
    new = policy.with_features(features_of(PROMPTS, "source"))
    assert str(new) == str(ba.adaptive(features=new.estimator.features, seed=2))
    assert new.needs == replace(policy.needs, scale="group", part=128)  # as measured with features
    assert new.allocate(PROMPTS.pool, ba.Budget(rollouts=64, floor=0)).sum() == 8


def test_features_come_once_and_before_the_first_step():
    features = features_of(PROMPTS, "text")
    with pytest.raises(ba.InputError, match="has features already"):
        ba.adaptive(features=features).with_features(features)
    policy = ba.adaptive()
    policy.observe(["a"], [1])
    with pytest.raises(ba.InputError, match="has learned from 1 steps"):
        policy.with_features(features)


def test_embeddings_are_passed_as_vectors():
    with pytest.raises(ba.InputError, match="of_vectors"):
        features_of(PROMPTS, "model")
