"""What reward functions do with made-up answers: healthy ones are passed over in silence."""

import asyncio
import difflib
import random
import re

import pytest
from conftest import SETTINGS, fresh_model, make_tokenizer
from datasets import Dataset, IterableDataset
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment, think_format_reward

from budgetalloc.training.success import Scoring
from budgetalloc.trl.reward_probes import probe

TAGS = "Think between <start_working_out> and <end_working_out>. Then write <SOLUTION></SOLUTION>."


def table(chat=False, **columns):
    """Rows with an answer each; `columns` are functions of the row's number, or replace the answer."""
    columns = {"answer": lambda n: str(n * 7 + 3)} | columns
    rows = []
    for n in range(24):
        prompt = [{"role": "system", "content": TAGS}, {"role": "user", "content": f"{n}="}] if chat else f"{n:03d}="
        rows.append({"prompt": prompt, "prompt_id": n} | {name: of(n) for name, of in columns.items() if of})
    return rows


@pytest.fixture
def said(tmp_path):
    """The sentences about these functions, on these rows."""

    def probed(functions, rows, stream=False, reward_range=None, success=None, **settings):
        data = IterableDataset.from_generator(lambda: iter(rows)) if stream else Dataset.from_list(rows)
        tokenizer = make_tokenizer()
        tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
        trainer = GRPOTrainer(
            model=fresh_model(),
            processing_class=tokenizer,
            reward_funcs=functions,
            args=GRPOConfig(str(tmp_path), **SETTINGS | settings),
            train_dataset=data,
        )
        weights = trainer.reward_weights.tolist()
        scoring = Scoring(trainer.reward_func_names, weights, success, reward_range, quiet=True)
        return list(probe(trainer, scoring))

    return probed


# Healthy functions, of the kinds that TRL's pages and examples show.


def length(completions, **_):
    return [-abs(20 - len(text)) for text in completions]


def letters(completions, **_):
    return [len(set(text)) for text in completions]


async def asynchronous(prompts, completions, answer, **_):
    await asyncio.sleep(0.001)
    return [float(text.strip() == right) for text, right in zip(completions, answer, strict=True)]


def boxed(completions, ground_truth, **_):
    found = [re.findall(r"\\boxed\{(.*?)\}", text) for text in completions]
    return [float(right in each) for each, right in zip(found, ground_truth, strict=True)]


def mathematics(completions, task, answer, **_):
    each = zip(completions, task, answer, strict=True)
    return [float(right in text) if kind == "math" else None for text, kind, right in each]


def scheduled(completions, answer, log_extra, log_metric, trainer_state, **_):
    log_extra("right", list(answer))
    log_metric("rows", len(answer))
    left = 1 - trainer_state.global_step / trainer_state.max_steps / 2
    print(completions)
    return [left * (text.strip() == right) for text, right in zip(completions, answer, strict=True)]


def last_number(completions, answer, **_):
    found = [["", *re.findall(r"\d+", text)][-1] for text in completions]
    return [float(number == right) for number, right in zip(found, answer, strict=True)]


def none_without_a_box(completions, answer, **_):
    found = [re.findall(r"\\boxed\{(.*?)\}", text) for text in completions]
    return [float(right in each) if each else None for each, right in zip(found, answer, strict=True)]


def similar(completions, answer, **_):
    both = zip(completions, answer, strict=True)
    return [difflib.SequenceMatcher(None, text, right).ratio() for text, right in both]


def rarely_negative(completions, **_):
    return [-float(len(text) > 10_000) for text in completions]


class Judge:
    def __call__(self, prompts, completions, answer, **_):
        each = zip(completions, answer, strict=True)
        return [float(text.strip().endswith(right)) + 0.001 * len(text) / 1000 for text, right in each]


def drawn(completions, answer, **_):
    return [random.random() for _ in completions]


def countdown(completions, target, nums, **_):
    each = zip(completions, target, nums, strict=True)
    return [float(re.fullmatch(r"<answer>.*\+.*</answer>", text) is not None and sum(n) == t) for text, t, n in each]


PLAIN = [
    *(length, letters, asynchronous, boxed, mathematics, scheduled, last_number, similar, rarely_negative, Judge()),
    *(none_without_a_box, countdown, drawn, get_soft_overlong_punishment(100, 20), get_repetition_penalty_reward()),
]


def test_healthy_functions_of_texts(said):
    more = {
        "ground_truth": lambda n: str(n + 100),
        "task": lambda n: "code" if n % 2 else "math",
        "target": lambda n: n + 5,
        "nums": lambda n: [n, 5],
    }
    assert said(PLAIN, table(**more)) == []


def in_tags(completions, answer, **_):
    pattern = re.compile(r"<start_working_out>.+?<end_working_out>.*?<SOLUTION>(.+?)</SOLUTION>\s*$", re.DOTALL)
    found = [pattern.search(messages[0]["content"]) for messages in completions]
    return [
        0.0 if each is None else 3.0 if each.group(1) == right else 1.5 if each.group(1).strip() == right else -1.0
        for each, right in zip(found, answer, strict=True)
    ]


def chat_length(completions, **_):
    return [len(messages[-1]["content"]) for messages in completions]


def strict_format(completions, **_):
    return [0.5 * bool(re.match(r"^<reasoning>\n.*?\n</reasoning>$", m[0]["content"], re.DOTALL)) for m in completions]


def test_healthy_functions_of_messages(said):
    assert said([think_format_reward, in_tags, chat_length, strict_format], table(chat=True)) == []


def test_trls_own_accuracy(said):
    pytest.importorskip("math_verify")
    from trl.rewards import accuracy_reward, reasoning_accuracy_reward

    rows = table(chat=True, answer=None, solution=lambda n: f"$\\frac{{{n}}}{{7}}$")
    assert said([accuracy_reward, reasoning_accuracy_reward], rows) == []


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: f"{n} and {n} are {2 * n}.\n#### {2 * n}",
        lambda n: f"So it is \\boxed{{{2 * n}}}.",
        lambda n: "5",
        lambda n: None if n % 2 else "6",
    ],
    ids=["GSM8K", "a whole solution", "always the same", "not all known"],
)
def test_where_the_answer_stands(said, answer):
    def last(text):
        return re.findall(r"\d+", text or "")[-1:]

    def correct(completions, answer, **_):
        each = zip(completions, answer, strict=True)
        return [float(bool(last(text)) and last(text) == last(right)) for text, right in each]

    assert said([correct], table(answer=answer)) == []


# Others.


def constant(completions, **_):
    return [0.5 for _ in completions]


def substring(completions, answer, **_):
    return [float(text in right) for text, right in zip(completions, answer, strict=True)]


def any_text(completions, answer, **_):
    return [float(bool(text)) for text in completions]


def exact(completions, answer, **_):
    return [float(text == right) for text, right in zip(completions, answer, strict=True)]


def last_word(completions, **_):
    return [float(text.split()[-1] == "4") for text in completions]


def leaves(completions, **_):
    raise SystemExit(3)


def test_what_is_said(said):
    assert said([constant, substring, any_text, exact, last_word, leaves], table()) == [
        "constant pays 0.5 for each of 80 answers, right, wrong and empty",
        "substring pays an empty answer 1, and the right one 1",
        "any_text pays the answer of another row like the right one, 12 times of 12",
        "exact pays the right answer less when a line break follows it",
        "last_word raises IndexError for the answer '': 'list index out of range'",
        "leaves raises SystemExit for the answer '': '3'",
    ]


def of_an_entry(completions, entry, **_):
    return [float(text == each["answer"]) for text, each in zip(completions, entry, strict=True)]


def test_an_answer_of_another_type(said):
    sentence = "pays the right answer no more than an empty one, in each of 13 forms"
    rows = table(answer=lambda n: n, entry=lambda n: {"answer": n})
    assert said([exact, of_an_entry], rows) == [f"exact {sentence}", f"of_an_entry {sentence}"]


def of_tuples(completions, pair, **_):
    return [float("42" in text and isinstance(each, tuple)) for text, each in zip(completions, pair, strict=True)]


def test_columns_that_a_dataset_changes(said):
    rows = table(answer=None, pair=lambda n: (n, 1))
    changed = "of_tuples changes when the columns have been through datasets.Dataset.from_list"
    assert said([of_tuples], rows, stream=True) == [changed]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"success": -0.5}, "success is never 0: 1 is the least of 28 wrong answers"),
        ({"reward_range": (-1.0, 1.0)}, "success is never 0: 0.5 is the least of 28 wrong answers"),
        ({"success": lambda rewards: rewards["none"]}, "success= raises KeyError for made-up answers: 'none'"),
    ],
)
def test_a_success_that_never_fails(said, options, sentence):
    assert said([asynchronous], table(), **options) == [sentence]


def test_without_a_known_answer_nothing_is_said_about_it(said):
    assert said([lambda completions, label, **_: exact(completions, label)], table(answer=None, label=str)) == []
