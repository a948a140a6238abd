"""Naming prompts."""

import subprocess
import sys

import pytest
from datasets import Dataset

import budgetalloc as ba
from budgetalloc.trl.prompts import Prompts, prompt_hash


def test_hash_tells_prompts_apart_and_nothing_else():
    chat = [{"role": "user", "content": "1+1"}]
    assert prompt_hash(chat) == prompt_hash([{"content": "1+1", "role": "user"}])  # the order of keys is not the prompt
    different = ["1+1", "1+1 ", chat, [{"role": "system", "content": "1+1"}], [*chat, *chat], "", "é", "e\u0301"]
    assert len({prompt_hash(x) for x in different}) == len(different)


def test_hash_is_the_same_in_every_process():
    code = "from budgetalloc.trl.prompts import prompt_hash; print(prompt_hash('2 + 2 ='), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "1"}
    )
    assert done.stdout == prompt_hash("2 + 2 =")


def test_column_or_hash():
    data = Dataset.from_list(
        [{"prompt": "a", "key": 3, "x": 1}, {"prompt": "b", "key": 4, "x": 2}, {"prompt": "a", "key": 3, "x": 3}]
    )
    by_key, by_hash = Prompts(data, "key"), Prompts(data, "prompt_id")
    assert by_key.ids([data[0], data[1]]) == [3, 4]
    assert by_key.first_rows() == {3: 0, 4: 1}
    assert by_hash.first_rows() == {prompt_hash("a"): 0, prompt_hash("b"): 1}
    assert by_hash.ids([data[2]]) == [prompt_hash("a")]
    assert by_key.rows([2, 0]) == [data[2], data[0]]


def test_fingerprint_changes_with_the_prompts_only():
    rows = [{"prompt": f"{n}", "x": n} for n in range(50)]
    base = Prompts(Dataset.from_list(rows), "prompt_id").fingerprint
    assert base == Prompts(Dataset.from_list([{**row, "x": -1} for row in rows]), "prompt_id").fingerprint
    assert base != Prompts(Dataset.from_list(rows[:-1]), "prompt_id").fingerprint
    assert base != Prompts(Dataset.from_list([*rows[:-1], {"prompt": "other", "x": 0}]), "prompt_id").fingerprint


def test_no_name_to_be_had():
    with pytest.raises(ba.UnsupportedError, match=r"columns \['question'\], neither 'prompt_id' nor 'prompt'"):
        Prompts(Dataset.from_list([{"question": "?"}]), "prompt_id")
