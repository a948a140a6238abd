"""Rows other than a line of text: conversations, tools, environments, images, and the user's own rollouts."""

import itertools
import re
import string
from pathlib import Path

import pytest
import torch
import trl
from conftest import SAVES, same_weights, trained, weights
from datasets import Dataset, Image
from PIL import Image as Picture
from test_surface import assert_in_place, content, even_sum, learned_rows, rebuilt, total, train, uneven
from tiny_llama import character_tokenizer, tiny_config, tiny_llama
from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import budgetalloc as ba
from budgetalloc.training.prompts import Prompts
from budgetalloc.trl import AdaptiveGRPOCallback

END, PAD = "<|im_end|>", "<pad>"
SPECIAL = [PAD, END, "<image>", "<|im_start|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
CHAT = Path(trl.__file__).with_name("chat_templates") / "qwen3.jinja"


def letters():
    """A tokenizer of single characters with the special tokens of Qwen's chat template."""
    tokenizer = character_tokenizer([*SPECIAL, *string.printable], PAD, END, padding_side="left")
    tokenizer.add_tokens(SPECIAL[2:])
    tokenizer.chat_template = CHAT.read_text()
    return tokenizer


def text_config():
    own = {"num_hidden_layers": 1, "max_position_embeddings": 2048, "pad_token_id": 0, "eos_token_id": 1}
    return tiny_config(len(SPECIAL) + len(string.printable), **own)


def conversations(**columns):
    """Prompts of one user message; `columns` are functions of the prompt's number."""
    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": f"{n:03d}?"}], "prompt_id": n}
            | {name: make(n) for name, make in columns.items()}
            for n in range(24)
        ]
    )


def number(prompt):
    """The number in the last message of a prompt."""
    return int(re.search(r"\d+", prompt[-1]["content"])[0])


def odd_letters(prompts, completions, **_):
    """Depends on the prompt's number and on what the first message of the completion says."""
    return [
        float((number(prompt) + sum(map(ord, completion[0].get("content") or ""))) % 2)
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def chatting(build, dataset, reward=odd_letters, more=None, **config):
    plain = build(max_steps=2, **config)
    given = {
        "model": tiny_llama(text_config()),
        "processing_class": letters(),
        "train_dataset": dataset,
        "reward_funcs": reward,
    }
    return rebuilt(plain, **given, **(more or {}))


@pytest.mark.parametrize("ids", ["column", "hash"])
def test_conversations(build, ids):
    data = conversations()
    trainer = chatting(build, data if ids == "column" else data.rename_column("prompt_id", "row"))
    callback, made = train(trainer)
    assert_in_place(trainer, callback, made, "prompt_id" if ids == "column" else "row")
    for each in made:
        said = [trainer.processing_class.decode(ids) for ids in each.prompt_ids]
        assert all(f"{number(row['prompt']):03d}?" in text for row, text in zip(each.rows, said, strict=True))
    assert len(callback.policy.estimator) == len({number(row["prompt"]) for each in made for row in each.rows})


def scripted(trainer, call):
    """Replaces every second first answer by the tool call that `call` returns for its prompt."""
    own = trainer._generate_single_turn
    tokenizer = trainer.processing_class
    answered = tokenizer.convert_tokens_to_ids("<tool_response>")

    def single_turn(prompt_ids, *more, **named):
        completion_ids, logprobs = own(prompt_ids, *more, **named)
        for at, ids in enumerate(prompt_ids):
            if at % 2 and answered not in ids:
                text = f"<tool_call>\n{call(tokenizer.decode(ids))}\n</tool_call>{END}"
                completion_ids[at] = tokenizer(text)["input_ids"]
        return completion_ids, logprobs

    trainer._generate_single_turn = single_turn


def times_seven(n: int) -> str:
    """
    Multiplies.

    Args:
        n: The number.
    """
    return f"[{7 * n}]"


def test_tools_answer_the_prompt_that_called_them(build):
    """The tokens of a tool's answer are masked in the row whose prompt called the tool."""
    seen = []

    def reward(prompts, completions, prompt_id, **_):
        seen.extend(zip(prompt_id, completions, strict=True))
        return odd_letters(prompts, completions)

    trainer = chatting(build, conversations(), reward, {"tools": [times_seven]}, max_completion_length=96)
    scripted(
        trainer,
        lambda text: f'{{"name": "times_seven", "arguments": {{"n": {int(re.findall("([0-9]+)[?]", text)[-1])}}}}}',
    )
    callback, made = train(trainer)
    assert_in_place(trainer, callback, made)
    answers = 0
    for name, completion in seen:
        for message in completion:
            if message["role"] == "tool":
                answers += 1
                assert message["content"] == f"[{7 * name}]"
    assert answers == 16  # half of two steps
    for each in made:
        names = {
            content(p, c, 0): row["prompt_id"]
            for p, c, row in zip(each.prompt_ids, each.completion_ids, each.rows, strict=True)
        }
        for batch in each.learned:
            for key, at in learned_rows(batch, 0):
                masked = batch["completion_ids"][at][batch["tool_mask"][at] == 0].tolist()
                if masked:
                    assert f"[{7 * names[key]}]" in trainer.processing_class.decode(masked)
                own = batch["completion_ids"][at][batch["tool_mask"][at] == 1].tolist()
                assert f"[{7 * names[key]}]" not in trainer.processing_class.decode(own)


TURNS = itertools.count()


class Board:
    """An environment whose task is in the row: `reset` gets its columns, and `get_reward` depends on the moves."""

    def reset(self, prompt_id, board, **_):
        self.task, self.board, self.luck = prompt_id, list(board), next(TURNS) % 2
        return f" Board {prompt_id}."

    def play(self, n: int) -> str:
        """
        Plays a move.

        Args:
            n: The move.
        """
        self.board.append(n)
        return f"{self.task}:{n}"

    def get_reward(self):
        return float(self.luck == len(self.board) % 2)


def test_an_environment_is_reset_with_its_own_row(build):
    """The task, the tools and the reward of an environment belong to its rollout's prompt."""
    seen = []

    def watching(prompts, completions, prompt_id, environments, **_):
        seen.extend((name, env.task) for name, env in zip(prompt_id, environments, strict=True))
        for name, completion in zip(prompt_id, completions, strict=True):
            assert all(m["content"].startswith(f"{name}:") for m in completion if m["role"] == "tool")
        return odd_letters(prompts, completions)

    trainer = chatting(
        build,
        conversations(board=lambda n: [n]),
        watching,
        {"environment_factory": Board},
        max_completion_length=96,
        reward_weights=[0.25],
    )
    scripted(trainer, lambda text: '{"name": "play", "arguments": {"n": 3}}')
    callback, made = train(trainer, success="watching")
    assert_in_place(trainer, callback, made)
    assert trainer.reward_weights.tolist() == [0.25, 1.0]
    assert len(seen) == 32
    assert all(name == task for name, task in seen)


@pytest.mark.parametrize("data", [conversations(board=lambda n: [n]).remove_columns("prompt_id"), None])
def test_an_environment_needs_named_rows(build, data):
    """`reset` decides what the task is: two rows with the same prompt may be different tasks."""
    trainer = chatting(build, data, [], {"environment_factory": Board})
    with pytest.raises(ba.UnsupportedError, match=r"environment_factory.*Add a column 'prompt_id'"):
        AdaptiveGRPOCallback(trainer)


def test_several_environments_need_named_rows(build):
    data = conversations(board=lambda n: [n], environment=lambda n: "board").remove_columns(["prompt_id", "prompt"])
    for policy in (ba.adaptive(), ba.uniform()):
        trainer = chatting(build, conversations(), [], {"environment_factory": {"board": Board}})
        trainer.train_dataset = data.select_columns(["environment", "board"])
        if policy.needs.baseline:
            with pytest.raises(ba.UnsupportedError, match=r"environment_factory.*Add a column 'prompt_id'"):
                AdaptiveGRPOCallback(trainer, policy)
        else:
            said = AdaptiveGRPOCallback(trainer, policy)._unobserved
            assert "Add a column 'prompt_id'" in said
            assert "Rename" not in said


def test_uniform_trains_as_trl_if_nothing_names_the_tasks(build, caplog):
    def unnamed_boards():
        boards = itertools.count()

        class Drawn(Board):
            def reset(self, **_):
                self.task = next(boards)
                self.board, self.luck = [self.task], self.task % 2
                return f" Board {self.task}."

        data = conversations(board=lambda n: [n]).remove_columns("prompt_id")
        return chatting(build, data, odd_letters, {"environment_factory": Drawn}, **SAVES)

    plain = unnamed_boards()
    plain.train()
    caplog.clear()
    trainer = unnamed_boards()
    trained(trainer, ba.uniform())
    assert same_weights(weights(plain), weights(trainer))
    assert trainer.state.global_step == plain.state.global_step == 2
    assert caplog.text.count("the log has no budgetalloc/ metrics, and checkpoints hold no beliefs") == 1
    assert "Add a column 'prompt_id'" in caplog.text
    assert not any(key.startswith("budgetalloc/") for entry in trainer.state.log_history for key in entry)
    assert not list(Path(trainer.args.output_dir).rglob("budgetalloc_*"))


def test_a_ledger_and_advantages_need_names_even_with_uniform(build, ledger):
    data = conversations(board=lambda n: [n]).remove_columns("prompt_id")
    trainer = chatting(build, data, [], {"environment_factory": Board})
    with pytest.raises(ba.UnsupportedError, match=r"ledger='.*' needs names of prompts\. With environment_factory"):
        AdaptiveGRPOCallback(trainer, "uniform", ledger=ledger)
    with pytest.raises(ba.UnsupportedError, match="With environment_factory"):
        AdaptiveGRPOCallback(trainer, "uniform", baseline="loo")


def test_an_environment_without_a_dataset_works_with_a_placeholder(build):
    """The error says what to do if the environment owns the data."""

    class Owner(Board):
        def reset(self, prompt_id, **_):
            return super().reset(prompt_id, [])

    trainer = chatting(build, None, [], {"environment_factory": Owner})
    with pytest.raises(ba.UnsupportedError, match=r"pass a placeholder: train_dataset=(.*), and let reset") as caught:
        AdaptiveGRPOCallback(trainer)
    advised = re.search(r"placeholder: train_dataset=(.*), and let reset\(prompt_id, ", str(caught.value))[1]
    data = eval(advised, {"Dataset": Dataset})  # noqa: S307, the error's own words
    assert data.column_names == ["prompt", "prompt_id"]
    policy = trained(chatting(build, data, [], {"environment_factory": Owner})).policy
    assert policy.estimator.step == 2
    assert set(policy.state_dict()["ids"]) <= set(range(1000))


def picture(n):
    return Picture.new("RGB", (8, 8), (10 * n,) * 3)


def painted():
    """The same question about 24 pictures of different grey, so only the picture identifies the prompt."""
    question = [{"role": "user", "content": "?"}]
    rows = [{"prompt": question, "prompt_id": n, "image": picture(n)} for n in range(24)]
    return Dataset.from_list(rows).cast_column("image", Image())


def seeing(build, reward, **config):
    """A tiny LLaVA: one picture of 8 by 8 is four tokens."""
    torch.manual_seed(0)
    vision = CLIPVisionConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
    )
    tokenizer = letters()
    image = tokenizer.convert_tokens_to_ids("<image>")
    model = LlavaForConditionalGeneration(
        LlavaConfig(vision_config=vision, text_config=text_config(), image_token_index=image, image_seq_length=4)
    )
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8}),
        tokenizer=tokenizer,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template="{% for message in messages %}{% for part in message.content %}"
        "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}",
    )
    never = {"suppress_tokens": [image]}  # as in TRL 1.16: a sampled image token would have no pixels
    return rebuilt(
        build(max_steps=2, generation_kwargs=never, **config),
        model=model,
        processing_class=processor,
        train_dataset=painted(),
        reward_funcs=reward,
    )


def grey(image):
    return image.getpixel((0, 0))[0] // 10


@pytest.mark.parametrize("policy", [uneven, ba.adaptive])
def test_pictures_stay_with_their_rollouts(build, policy):
    """The pixels of a row are those of the prompt whose advantage is in the row, also of prompts that were chosen."""

    def reward(prompts, completions, prompt_id, image, **_):
        assert [grey(each) for each in image] == prompt_id
        return [float((n + len(text[0]["content"])) % 2) for n, text in zip(prompt_id, completions, strict=True)]

    trainer = seeing(build, reward, per_device_train_batch_size=8, steps_per_generation=2)
    callback, (each,) = train(trainer, policy(seed=1), candidates="all")
    processor = trainer.processing_class.image_processor
    pixels = {n: processor(images=[picture(n)], return_tensors="pt")["pixel_values"][0] for n in range(24)}
    names = [row["prompt_id"] for row in each.rows]
    if callback.options.baseline == "group":
        advantages = ba.group_advantages(total(trainer, each), names, "group", callback.options.scale)
    else:
        advantages = callback.options.advantages(callback.batch).values_R
    assert advantages.any()
    keys = zip(names, map(tuple, each.completion_ids), strict=True)
    expected = dict(zip(keys, advantages, strict=True))
    assert len(each.learned) == 2
    for batch in each.learned:
        assert len(batch["pixel_values"]) == len(batch["advantages"]) == 8
        for at, shown in enumerate(batch["pixel_values"]):
            name = min(pixels, key=lambda n: float((pixels[n] - shown).abs().sum()))
            ids = batch["completion_ids"][at][batch["completion_mask"][at].bool()].tolist()
            assert float(batch["advantages"][at]) == pytest.approx(expected[name, tuple(ids)], abs=1e-4)


@pytest.mark.parametrize("policy", [ba.methods.dapo, ba.methods.pods])
def test_pictures_are_refused_in_rounds_and_if_only_some_rows_are_trained_on(build, policy):
    trainer = seeing(build, lambda completions, **_: [float(n % 2) for n in range(len(completions))])
    with pytest.raises(ba.UnsupportedError, match=r"images|pixel_values"):
        train(trainer, policy(seed=1))


PICTURE_IN_MESSAGE = {"role": "user", "content": [{"type": "image", "image": Picture.new("RGB", (8, 8))}]}


def test_pictures_inside_messages_do_not_name_a_prompt():
    """Python prints a picture with its address in memory, so each visit would be a new prompt."""
    row = {"prompt": [PICTURE_IN_MESSAGE]}
    with pytest.raises(ba.UnsupportedError, match=r"no text .*\bImage\b.*Add a column 'prompt_id'"):
        Prompts([row]).ids([row])


def test_rollouts_of_the_users_own(build, tokenizer):
    """`rollout_func` gets one prompt per row. Its columns and its `env_mask` belong to that row, not to the prompt."""
    given = []

    def rollout(prompts, trainer):
        given.append((list(prompts), trainer.num_generations))
        ids = [tokenizer(text)["input_ids"] for text in prompts]
        completions = [[at % 10, (at + 1) % 10, int(text[2]), 12] for at, text in enumerate(prompts)]
        return {
            "prompt_ids": ids,
            "completion_ids": completions,
            "logprobs": [[-1.0] * 4 for _ in prompts],
            "env_mask": [[1, 1, 0, 1] for _ in prompts],
            "digit": [int(text[2]) for text in prompts],
            "turn": list(range(len(prompts))),
        }

    def reward(prompts, completions, digit, turn, **_):
        assert digit == [int(text[2]) for text in prompts]
        assert turn == list(range(16))
        return even_sum(prompts, completions)

    trainer = rebuilt(build(max_steps=2), rollout_func=rollout, reward_funcs=reward)
    callback, made = train(trainer)
    assert_in_place(trainer, callback, made)
    for each, (prompts, _) in zip(made, given, strict=True):
        assert prompts == [row["prompt"] for row in each.rows]
        for batch in each.learned:
            assert batch["tool_mask"].tolist() == [[1, 1, 0, 1]] * 16
            assert (batch["completion_ids"][:, 2] == batch["prompt_ids"][:, 2]).all()
            assert (batch["sampling_per_token_logps"] == -1).all()
    assert {size for _, size in given} == {1}  # each row is a prompt of its own
