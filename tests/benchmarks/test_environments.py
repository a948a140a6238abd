"""The five environments: who belongs where, what is right, and a table from paired seeds."""

from pathlib import Path

import environments as env
import pytest

from budgetalloc.cli.testbed import skills


def test_pools_have_the_sizes_and_share_no_prompt_with_the_held_out():
    rows, held = env.pool(seed=1), env.held_out()
    for name, size in env.SIZES.items():
        of = [row for row in rows if row["domain"] == name]
        assert len({row["prompt_id"] for row in of}) == size
        assert all(env.environment(row["prompt_id"]) == name for row in of)
    assert [row["domain"] for row in held] == [name for name in env.LEARNABLE for _ in range(40)]
    assert not {row["prompt_id"] for row in rows} & {row["prompt_id"] for row in held}


def test_the_reward_is_the_answer_and_a_coin_where_nothing_can_be_learned():
    reward = env.make_reward(0)
    ids = [skills.prompt_id(text) for text in ("d2041=", "d1042=", "d1042=")]
    assert reward(["4210", "0421", "4210"], ids) == [1.0, 1.0, 0.0]
    coins = reward(["1042"] * 4000, [skills.prompt_id("z1042=")] * 4000)
    assert sum(coins) / 4000 == pytest.approx(0.12, abs=0.03)


def test_the_page_has_the_figures_of_the_table():
    cells = {
        name.strip("` "): [cell.strip() for cell in rest]
        for name, *rest in (line.strip("|").split("|") for line in env.lines(env.read(env.RESULTS)) if "|" in line)
    }
    text = (Path(__file__).parents[2] / "docs/evidence.md").read_text(encoding="utf-8")
    lines = text[text.index("| mixture |") :].split("\n\n")[0].splitlines()[2:]
    page = [line.strip("|").split("|") for line in lines]
    arms = ["learn", "two thirds to d", "even", "proportional", "sampled", "pac", "sec"]
    shown = dict(zip(arms, page, strict=True))
    for name, (_, *row) in shown.items():
        told = [cell.strip() for cell in row]
        assert told[:5] == cells[name][:5]
        assert told[5] == ("" if name == "two thirds to d" else cells[name][5])
    over_run = cells["learn"][7].split()[0].removeprefix("-")
    assert f"its mean is {over_run} lower than the best static one's" in " ".join(text.split())
