"""Following a growing ledger gives the same rows as reading it at its end, wherever the pieces are cut."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc.logs.chunk import LARGEST
from budgetalloc.logs.tail import Tail
from budgetalloc.report.live_run import Live


def written(path):
    """A ledger with ranges of rewards, stated success, a resume, and a line that a kill has cut off."""
    writer = ba.LedgerWriter(path)
    for step in range(4):
        rewards = [0.0, 2.0, float("nan"), 1.0 + step]
        writer.append(step, ["a", "a", 7, "b"], rewards, [3] * 4, [0.25] * 4, [2, 2, 1, 1], reward_range=(0, 2 + step))
    with path.open("a") as file:
        file.write('{"step": 4, "id": "a", "rew')
    writer = ba.LedgerWriter(path)  # ends the incomplete line
    writer.resume(2)
    for step in (2, 3):
        columns = [[1.0, 0.0], [5, 5], [0.5, 0.5], [1, 1]]
        writer.append(step, ["a", "c"], *columns, success_R=[0.0, 1.0], decision=step)
    return path.read_bytes()


def seen(tails):
    live = Live()
    for news in tails:
        live.add(news)
    return live


@given(cuts=st.lists(st.integers(0, 1200), max_size=6))
def test_pieces_of_any_size_give_the_rows_of_the_whole(tmp_path_factory, cuts):
    folder = tmp_path_factory.mktemp("tail")
    data = written(folder / "whole.jsonl")
    path = folder / "grown.jsonl"
    tail, rows = Tail(path), []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        with path.open("ab") as file:
            file.write(data[start:end])
        rows += tail.news()
    live, whole = seen(rows), ba.Ledger.read(folder / "whole.jsonl")
    assert (list(live.steps), live.rollouts) == ([0, 1, 2, 3], len(whole.ids_R))
    assert live.seen_ids == {"a", "b", "c", 7}
    for step, figures in live.steps.items():
        of_R = whole.step_R == step
        assert figures.reward == np.nansum(whole.rewards_R[of_R])
        assert figures.success == np.nansum(whole.success_R[of_R])
    assert tail.broken == 1  # the line that the kill has cut off


def test_a_file_that_is_not_there_yet_and_one_that_was_replaced(tmp_path):
    path = tmp_path / "ledger.jsonl"
    tail = Tail(path)
    assert list(tail.news()) == []
    for step in range(3):
        ba.LedgerWriter(path).append(step, ["a"], [1.0], [1], [0.5], [1])
    live = seen(tail.news())
    assert list(live.steps) == [0, 1, 2]
    path.unlink()
    ba.LedgerWriter(path).append(9, ["z"], [1.0], [1], [0.5], [1])
    news = list(tail.news())
    assert news[0] == -LARGEST
    for each in news:
        live.add(each)
    assert list(live.steps) == [9]
