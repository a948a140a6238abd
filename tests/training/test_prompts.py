"""Prompt ids and the pool of a dataset."""

import subprocess
import sys

import pytest
from datasets import Dataset, Image
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture

import budgetalloc as ba
from budgetalloc.training.prompts import Prompts, prompt_hash, turns


def test_hash_tells_prompts_apart_and_nothing_else():
    chat = [{"role": "user", "content": "1+1"}]
    assert prompt_hash(chat) == prompt_hash([{"content": "1+1", "role": "user"}])  # the order of keys is not the prompt
    different = ["1+1", "1+1 ", chat, [{"role": "system", "content": "1+1"}], [*chat, *chat], "", "é", "e\u0301"]
    assert len({prompt_hash(x) for x in different}) == len(different)


def test_hash_is_the_same_in_every_process():
    code = "from budgetalloc.training.prompts import prompt_hash; print(prompt_hash('2 + 2 ='), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "1"}
    )
    assert done.stdout == prompt_hash("2 + 2 =")


def test_column_or_hash():
    data = Dataset.from_list(
        [{"prompt": "a", "key": 3, "x": 1}, {"prompt": "b", "key": 4, "x": 2}, {"prompt": "a", "key": 3, "x": 3}]
    )
    by_key, by_hash = Prompts(data, "key"), Prompts(data)
    assert by_key.ids([data[0], data[1]]) == [3, 4]
    assert (list(by_key.pool), by_key.first_rows_P.tolist()) == ([3, 4], [0, 1])
    assert (list(by_hash.pool), by_hash.first_rows_P.tolist()) == ([prompt_hash("a"), prompt_hash("b")], [0, 1])
    assert by_key.rows_of_one == {3: [0, 2]}
    assert by_hash.ids([data[2]]) == [prompt_hash("a")]
    assert by_key.rows([2, 0]) == [data[2], data[0]]


def test_fingerprint_changes_with_the_prompts_only():
    rows = [{"prompt": f"{n}", "x": n} for n in range(50)]
    base = Prompts(Dataset.from_list(rows)).fingerprint
    assert base == Prompts(Dataset.from_list([{**row, "x": -1} for row in rows])).fingerprint
    assert base != Prompts(Dataset.from_list(rows[:-1])).fingerprint
    assert base != Prompts(Dataset.from_list([*rows[:-1], {"prompt": "other", "x": 0}])).fingerprint


def test_a_column_that_is_asked_for_must_be_there():
    data = Dataset.from_list([{"prompt": "a", "problem_id": 1}])
    with pytest.raises(ba.InputError, match=r"prompt_id='problem_ids': .* did you mean problem_id\? It has"):
        Prompts(data, "problem_ids")
    with pytest.raises(ba.InputError, match="prompt_id='prompt_id': the train dataset has no such column"):
        Prompts(data, "prompt_id")
    with pytest.raises(ba.InputError, match="prompt_id=5 is of type int: give the name of a dataset column, or None"):
        Prompts(data, 5)
    stream = Prompts(iter([]), "problem_ids")  # its columns show at its first row
    with pytest.raises(ba.InputError, match=r"prompt_id='problem_ids': .* did you mean problem_id\?"):
        stream.ids([data[0]])
    assert Prompts(iter([])).ids([data[0]]) == [prompt_hash("a")]


def test_names_that_are_not_required():
    for row in ({"question": "?"}, {"prompt": "?", "image": 1}):
        assert isinstance(Prompts(Dataset.from_list([row]), required=False).unnamed, ba.UnsupportedError)
    assert Prompts(Dataset.from_list([{"prompt": "?"}]), required=False).unnamed is None
    with pytest.raises(ba.InputError, match="no such column"):
        Prompts(Dataset.from_list([{"prompt": "?"}]), "key", required=False)


def test_no_name_to_be_had():
    with pytest.raises(ba.UnsupportedError, match=r"Rename .*rename_column\('question', 'prompt'\)"):
        Prompts(Dataset.from_list([{"question": "?"}]))


def test_long_prompts_are_shown_where_they_differ():
    chat = [[{"role": "user", "content": "x" * 5000 + end}] for end in ("one", "two")]
    data = Dataset.from_list([{"prompt": each, "prompt_id": "a"} for each in chat])
    with pytest.raises(ba.InputError, match=r"xone'.*xtwo'") as caught:
        Prompts(data).check()
    assert len(str(caught.value)) < 1000


def test_one_id_with_two_pictures_is_refused():
    pictures = [Picture.new("RGB", (2, 2), (grey,) * 3) for grey in (0, 0, 9)]
    data = Dataset.from_list([{"prompt": "?", "prompt_id": 1, "image": each} for each in pictures])
    data = data.cast_column("image", Image())
    Prompts(data.select([0, 1])).check()
    with pytest.raises(ba.InputError, match=r"'image' is .* in row 0 and .* in row 2"):
        Prompts(data).check()


def test_the_check_reads_more_rows_than_one_chunk():
    rows = [{"prompt": str(n // 2), "prompt_id": n // 2} for n in range(5000)]
    Prompts(Dataset.from_list(rows)).check()
    rows[4999]["prompt"] = "other"
    with pytest.raises(ba.InputError, match="'2499' in row 4998 and 'other' in row 4999"):
        Prompts(Dataset.from_list(rows)).check()


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(0, 5))
def test_turns_follow_one_another(ids, seed):
    turn_R = turns(ids, [seed])
    for name in set(ids):
        mine = [turn for turn, each in zip(turn_R, ids, strict=True) if each == name]
        assert mine == list(range(mine[0], mine[0] + len(mine)))


def test_the_prompt_may_lie_in_another_column():
    rows = [{"question": f"{n // 2}", "key": n // 2} for n in range(6)]
    prompts = Prompts(Dataset.from_list(rows), None, "question")
    assert prompts.ids(rows[:1]) == [prompt_hash("0")]
    assert prompts.first_rows_P.tolist() == [0, 2, 4]
    assert prompts.texts([prompt_hash("1")]) == {prompt_hash("1"): "1"}
    assert prompts.places_in_turn([(prompt_hash("1"), turn) for turn in range(3)]) == [2, 3, 2]
    assert "'question'" in prompts.shared_ids_warning()
    with pytest.raises(ba.UnsupportedError, match=r"the columns \['question', 'key'\], and no 'prompt'"):
        Prompts(Dataset.from_list(rows))
    rows[5]["question"] = "other"
    with pytest.raises(ba.InputError, match="'question' is '2' in row 4 and 'other' in row 5"):
        Prompts(Dataset.from_list(rows), "key", "question").check()
