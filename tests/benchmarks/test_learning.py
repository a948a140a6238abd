"""The learning benchmark: its statistics on curves with a known answer, and one short real run that resumes."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import against  # of benchmarks/learning
import measures
import numpy as np
import pages
import pytest
import run
import table
from twice import twice
from verdict import rivals, verdict

from budgetalloc.offline.intervals import share_reached

FOLDER = Path(table.__file__).parent
STEPS_150 = 150 * 256  # rollouts


def run_of(curve, policy="x", mix="m", rate=3e-4, seed=100, steps=1, **end):
    """A run with this success by rollouts, whose last point has more measures."""
    points = [{"rollouts": at, "expected": success} for at, success in curve.items()]
    points[-1] |= end
    return {"policy": policy, "mix": mix, "rate": rate, "seed": seed, "steps": steps, "curve": points}


def run_to(success, *given, **more):
    """A run from success 0.2 to this one."""
    return run_of({0: 0.2, 256: success}, *given, **more)


def flat(success, *given, steps=1, **more):
    """A run with the same success at all points."""
    return run_of({0: success, 256 * steps: success}, *given, steps=steps, **more)


def test_summary_of_a_policy_twice_as_fast():
    rollouts = np.linspace(0, 100, 11)
    rng = np.random.default_rng(0)
    level = rng.normal(0, 0.02, (8, 1))  # seeds differ, the policies on a seed do not
    slow = 0.4 + 0.004 * rollouts + level
    fast = 0.4 + 0.008 * rollouts + level
    cells = table.summary(fast, slow, rollouts)
    assert cells["to uniform's end"].startswith("0.50 (")
    assert cells["mean less uniform's"] == "+0.200 (0.200 to 0.200)"
    assert table.summary(slow, slow, rollouts)["to uniform's end"].startswith("1.00 (")
    assert table.summary(slow - 0.1, slow, rollouts)["to uniform's end"] == "never (beyond the run)"


def test_a_share_that_may_lie_beyond_the_run_ends_in_never():
    rollouts = np.linspace(0, 100, 11)
    ends = np.array([0.70, 0.80, 0.90])  # of the base; the policy's mean curve reaches their mean, 0.8, at 0.8
    base = np.tile(ends[:, None], 11)
    own = np.tile(0.4 + 0.005 * rollouts, (3, 1))
    assert table.share_with_interval(share_reached(own, base, rollouts, 100)) == "0.80 (0.303 to never)"
    assert table.share_with_interval(share_reached(own, base + 0.2, rollouts, 100)) == "never (0.703 to never)"
    assert table.share_with_interval(share_reached(own, base + 0.9, rollouts, 100)) == "never (beyond the run)"
    assert table.share_with_interval(share_reached(own[:1], base[1:2], rollouts, 100)) == "0.80 (one seed)"


def test_tuning_takes_its_own_seeds():
    rows = [flat(0.5, rate=1e-4), flat(0.6), flat(0.9, rate=1e-4, seed=0), flat(0.5, rate=1e-4, seed=101)]
    rows.append(flat(0.5, seed=101))
    assert table.best_rates(rows, range(100, 200)) == {("x", "m"): 3e-4}


def test_runs_on_tuning_seeds_are_listed_by_rate_the_best_first():
    rows = [run_to(0.5, rate=1e-4, seed=101), run_to(0.4, rate=1e-4), run_to(0.8), run_to(0.9, seed=0)]
    rows.append(run_to(1, mix="n"))
    assert table.tuning(rows, "m").splitlines()[2:4] == [
        "| x at 0.0003 | 100 | 0.200 | 0.800 | 0.500 |",
        "| x at 0.0001 | 100, 101 | 0.200 | 0.400, 0.500 | 0.325 |",
    ]


def test_a_policy_stands_beside_uniform_at_its_best_group_and_rate():
    rows = [run_to(0.4, "uniform", rate=1e-4), run_to(0.6, "uniform2", pass64=0.7), run_to(0.5, "uniform2", rate=1e-4)]
    rows += [run_to(0.6, "adaptive", pass64=0.8), run_to(0.8, "adaptive", rate=1e-4)]
    assert table.against_uniform(rows).splitlines()[2:] == [
        "| m | 0.200 | 2, 0.0003 | 1 | 0.400 | 0.700 | 0.0001 | 1 | 0.500 | unknown |",
        "| m | 0.200 | 2, 0.0003 | 1 | 0.400 | 0.700 | 0.0003 | 1 | 0.400 | 0.800 |",
    ]


def test_what_was_tried_is_listed_by_mix_the_best_first_with_its_coverage_where_all_runs_have_it():
    rows = [run_to(0.4, "worse", pass64=0.6), run_to(0.4, "worse", seed=101), run_to(0.6, "best", pass64=0.7)]
    rows.append(run_to(0.8, "best", seed=101, pass64=0.8))
    assert table.explored(rows).splitlines()[2:] == [
        "| m | 0.0003 | best | 2 | 0.450 +- 0.050 | 0.750 |",
        "| m | 0.0003 | worse | 2 | 0.300 +- 0.000 | unknown |",
    ]


def test_mean_success_weighs_points_by_their_rollouts():
    """A policy that resamples is measured at other rollouts than the rest."""
    curve = [{"rollouts": at, "expected": level} for at, level in ((0, 0.0), (100, 1.0), (400, 1.0))]
    assert run.mean_success(curve) == pytest.approx((50 + 300) / 400)


def test_curves_are_read_on_one_grid_of_rollouts():
    curve = {0: 0.4, STEPS_150 / 2: 0.8, 1.01 * STEPS_150: 0.8}
    rows = [run_of({0: 0.5, STEPS_150: 0.6}, steps=150), run_of(curve, seed=0, steps=150)]
    curves, grid = table.collect(rows, "m")
    assert grid[-1] == STEPS_150
    assert curves["x"][0][[0, 3, -1]].tolist() == pytest.approx([0.4, 0.56, 0.8])


def test_gain_over_mixes_is_the_mean_of_the_gains():
    def seeds(*levels):
        return {seed: np.full(4, level) for seed, level in enumerate(levels)}

    tables = {
        "one": {"uniform": seeds(0.5, 0.6), "adaptive": seeds(0.7, 0.8)},
        "two": {"uniform": seeds(0.4, 0.4), "adaptive": seeds(0.4, 0.4)},
    }
    assert table.over_mixes(tables, "adaptive", "uniform") == "+0.100 (0.100 to 0.100)"


def test_uniform_is_compared_at_its_best_group_size():
    rows = [flat(0.5, "uniform", rate=1e-4), flat(0.6, "uniform"), flat(0.9, "uniform", seed=0)]
    rows += [flat(0.65, "uniform4"), flat(0.61, "uniform4", seed=101), flat(0.8, "uniform2")]
    assert table.best_uniform(rows, "m", ["uniform", "uniform4", "adaptive"]) == "uniform4"
    assert table.best_uniform(rows, "m", ["uniform", "adaptive"]) == "uniform"
    levels = {"uniform": (0.0, 0.0), "uniform4": (0.2, 0.2), "adaptive": (0.4, 0.6)}
    curves = {name: {seed: np.full(3, level) for seed, level in enumerate(of)} for name, of in levels.items()}
    gain = table.over_mixes({"m": curves}, "adaptive", table.BEST, {"m": "uniform4"})
    assert gain == "+0.300 (-0.971 to 1.571)"  # 0.3 -+ 12.706 * 0.1


def test_other_measures_are_printed_of_the_runs_that_recorded_them():
    def row(lost, **more):
        known = {"pass8": 0.9, "pass64": 0.95, "entropy": 0.1, "baseline_error": 0.02, "explained": 0.4} if more else {}
        return {"lost": lost, "curve": [{"tokens": 1000, "seconds": 30.0, **known}], **more} if more else {"curve": []}

    new = {"quartiles": [[0.1, 0.3], [0.4, 0.5], [0.8, 0.9], [1.0, 1.0]], "gained": 4, "prompts": 40}
    printed = measures.lines({"old": [row(0)], "new": [row(1, **new), row(3, **new), row(0)]})
    assert len(printed) == 3
    assert all(line.count("|") == len(measures.HEAD) + 1 for line in printed)
    assert printed[2].startswith("| new | 2 | 0.900 | 0.950 | 0.10 to 0.30, 0.40 to 0.50")
    assert "| 5.0 % | 10.0 % | 0.10 | 0.0200 | 0.40 | 1,000 | 30 |" in printed[2]
    assert measures.lines({"old": [row(0)]}) == []


def test_run_and_resume(tmp_path, capsys):
    pytest.importorskip("trl")
    out = tmp_path / "results.jsonl"
    words = ["--policy", "adaptive", "--policy", "uniform", "--mix", "hard_tail", "--seed", "0", "--rate", "3e-4"]
    words += ["--steps", "2", "--out", str(out)]
    run.main(words)
    assert "2 runs, 0 of them done before" in capsys.readouterr().out
    lines = out.read_text().splitlines()
    out.write_text(lines[0] + "\n" + lines[1][: len(lines[1]) // 2])  # killed while it wrote the second
    run.main(words)
    assert "2 runs, 1 of them done before" in capsys.readouterr().out
    rows = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")]
    assert [row["policy"] for row in rows] == ["adaptive", "uniform"]
    assert all(row["curve"][-1]["rollouts"] == 2 * 256 for row in rows)
    assert all(0.1 < row["curve"][0]["expected"] < 0.5 for row in rows)
    assert all(row["prompts"] == 600 and len(row["quartiles"]) == 4 for row in rows)
    assert all(row["curve"][-1]["baseline_error"] > 0 for row in rows)


@pytest.mark.parametrize("how", ["--jobs 2", "--ray"])
def test_a_policy_of_a_file_is_trained_in_a_process_of_its_own(how, tmp_path):
    pytest.importorskip("trl")
    pytest.importorskip("ray" if how == "--ray" else "joblib")
    path, out = tmp_path / "mine.yaml", tmp_path / "results.jsonl"
    path.write_text("policy: knapsack\nbudget: {cap: 16}\ncallback: {ledger: nowhere.jsonl}\n")
    command = [sys.executable, str(FOLDER / "run.py"), "--config", str(path), "--rate", "3e-4", *how.split()]
    command += ["--mix", "growing", "--seed", "0", "--steps", "1", "--out", str(out)]
    env = os.environ | {
        "RAY_ADDRESS": "local",  # not a cluster that another test starts and ends at the same time
        "RAY_worker_niceness": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    row = json.loads(out.read_text())
    assert row["policy"].startswith("mine-")
    assert row["curve"][-1]["rollouts"] == 256
    assert not (tmp_path / "nowhere.jsonl").exists()  # runs side by side would share it


def test_the_verdict_on_runs_of_known_success():
    def row(policy, mix, seed, gain, end):
        curve = {256.0 * at: 0.4 + gain * at for at in range(0, 151, 10)}
        return run_of(curve, policy, mix, 1e-4, seed, steps=150, pass64=end)

    def seeds(policy, mix, gain, end):
        return [row(policy, mix, seed, gain, end) for seed in (0, 1, 2, 100)]

    rows = [row("uniform", "unsure", seed, 0.001, 0.8) for seed in (0, 1, 2, 100)]
    rows += [row("adaptive", "unsure", at, 0.0002 + 0.001 * at, 0.71 + 0.1 * at) for at in (0, 1, 2)]
    rows.append(row("adaptive", "unsure", 100, 0.001, 0.8))
    rows += seeds("uniform", "fast", 0.001, 0.8) + seeds("adaptive", "fast", 0.004, 0.9)
    rows += seeds("uniform", "slow", 0.002, 0.8) + seeds("adaptive", "slow", 0.001, 0.7)
    rows += [*seeds("uniform2", "fast", 0.002, 0.85), row("uniform", "new", 100, 0.001, 0.8)]
    rows += [{**run, "steps": 75} for name in ("uniform", "adaptive") for run in seeds(name, "short", 0.001, 0.8)]
    text = verdict(rows, "adaptive")
    fast = "| fast | 3 | 0.400 | 2, 0.0001 | 0.550 | 0.850 | 0.0001 | 0.700 | 0.900 | +0.150 (0.150 to 0.150) | +0.050"
    assert f"{fast} (0.050 to 0.050) | 0.50 (0.500 to" in text
    assert "| slow | 3 | 0.400 | 8, 0.0001 | 0.550 | 0.800 | 0.0001 | 0.475 | 0.700 | -0.075 (-0.075 to" in text
    unsure = "| unsure | 3 | 0.400 | 8, 0.0001 | 0.475 | 0.800 | 0.0001 | 0.490 | 0.810 | +0.015 (-0.171 to 0.201)"
    assert f"{unsure} | +0.010 (-0.238 to 0.258) | 0.83 (" in text
    assert text.splitlines()[-4:] == [
        "- **Mean success over the run**: higher on 1 of 3 mixes, by 0.150. Lower on 1, by 0.075 (`slow`). "
        "No difference was seen on 1 (`unsure`).",
        "- **Coverage at the end (pass@64)**: higher on 1 of 3 mixes, by 0.050. Lower on 1, by 0.100 (`slow`). "
        "No difference was seen on 1 (`unsure`).",
        "- **Rollouts to uniform's final success**: 0.75 (0.306 to 1.824) of uniform's, as a geometric mean over the "
        "mixes. Never reached on 1 (`slow`), counted as 1.",
        "- **Left out** (fewer than two seeds of 150 steps): `new`, `short`.",
    ]


def test_the_short_table_is_the_long_one_with_fewer_columns():
    rows = [
        run_of({0: 0.2, STEPS_150: end}, policy, seed=seed, steps=150, pass64=pass64)
        for seed in (0, 1, 100)
        for policy, end, pass64 in (("uniform", 0.4, 0.5), ("adaptive", 0.6, 0.7))
    ]
    long, short = (verdict(rows, "adaptive", short).splitlines()[2] for short in (False, True))
    assert long == (
        "| m | 2 | 0.200 | 8, 0.0003 | 0.300 | 0.500 | 0.0003 | 0.400 | 0.700 | +0.100 (0.100 to 0.100) "
        "| +0.200 (0.200 to 0.200) | 0.50 (0.500 to 0.500) |"
    )
    assert short == "| m | 0.200 | 0.300 | 0.400 | +0.100 (0.100 to 0.100) | 0.500 | 0.700 |"


def test_what_a_script_prints_takes_the_place_of_what_it_printed_before():
    page = "# Page\n\n## One\n\nWords.\n\n| a |\n|---|\n| 1 |\n| 2 |\n\n| a |\n|---|\n\n- Best: 2."
    page += "\n\n## Two\n\n- Best: 0.\n"
    first, second = "| a |\n|---|\n| 3 |", "| a |\n|---|\n| 4 |"
    new = pages.replaced(page, "## One", f"{first}\n\n{second}\n\n- Best: 6.")
    assert new == f"# Page\n\n## One\n\nWords.\n\n{first}\n\n{second}\n\n- Best: 6.\n\n## Two\n\n- Best: 0.\n"
    assert pages.replaced(new, "## One", f"{first}\n\n{second}\n\n- Best: 6.") == new
    for heading, text, error in (
        ("## Three", first, "No section '## Three'"),
        ("## Two", first, "No table in '## Two'"),
        ("## Two", "- Worst: 1.", "0 lines in '## Two' begin with '- Worst:'"),
    ):
        with pytest.raises(SystemExit, match=error):
            pages.replaced(page, heading, text)


def test_every_section_that_is_written_is_on_its_page_once(tmp_path):
    rows = [
        run_to(0.5, policy, mix, seed=seed, steps=150)
        for policy in ("uniform", "adaptive")
        for mix in ("u_shape", "hard_once")
        for seed in (0, 1, 100)
    ]
    places = [(page, heading) for page, heading, _ in pages.printed(rows, tmp_path)]  # no file of other runs there
    assert len(places) == len(set(places))
    for page, heading in places:
        assert (pages.ROOT / page).read_text(encoding="utf-8").split("\n").count(heading) == 1, heading


def test_runs_of_older_code_are_in_no_table():
    rows = [run_to(0.5, name, seed=seed) for name in ("uniform", "adaptive", "adaptive_0.1") for seed in (0, 100)]
    assert [row["policy"] for row in table.current(rows)] == ["uniform"] * 2 + ["adaptive"] * 2


def test_curves_are_drawn_only_into_a_folder_that_is_named(tmp_path, monkeypatch, capsys):
    rows = [run_to(0.5, name, seed=seed, steps=150) for name in ("uniform", "adaptive_0.1") for seed in (0, 1, 100)]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    drawn = []
    monkeypatch.setattr(table, "draw", lambda curves, rollouts, mix, path: drawn.append((path.name, list(curves))))
    monkeypatch.setattr(table, "tokens_a_rollout", lambda *given: 5.0)  # these runs count none
    monkeypatch.setattr(sys, "argv", ["table.py", str(tmp_path / "runs.jsonl")])
    table.main()
    assert drawn == []
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--out", str(tmp_path / "new" / "curves")])
    table.main()
    assert drawn == [("m.png", ["uniform"])]
    assert (tmp_path / "new" / "curves").is_dir()
    assert "_0.1" not in capsys.readouterr().out


def test_rivals_are_those_with_runs_on_all_mixes():
    def seeds(policy, mix, level, **end):
        return [flat(level, policy, mix, 1e-4, seed, steps=150, **end) for seed in (0, 1, 100)]

    rows = seeds("adaptive", "one", 0.6, pass64=0.7) + seeds("adaptive", "two", 0.5, pass64=0.7)
    rows += seeds("spo", "one", 0.4, pass64=0.8) + seeds("spo", "two", 0.4)  # recorded on one of the two
    rows += seeds("vade", "one", 0.1, pass64=0.1) + seeds("uniform", "one", 0.1) + seeds("uniform", "two", 0.1)
    lines = rivals(rows, "adaptive").splitlines()
    assert len(lines) == 3
    one, two = (rivals([row for row in rows if row["mix"] == mix], "adaptive").splitlines() for mix in ("one", "two"))
    assert two[2] == "| spo | 2 | +0.100 (0.100 to 0.100) | +0.100 on two | not recorded | not recorded |"
    assert [line.split()[1] for line in one[2:]] == ["spo", "vade"]
    assert lines[2] == (
        "| spo | 4 | +0.150 (0.150 to 0.150) | +0.100 on two | -0.100 (-0.100 to -0.100), 1 mix | -0.100 on one |"
    )


def test_the_lowest_rate_that_both_have_and_that_is_at_least_twice_the_best():
    def runs(policy, rate, level):
        return [run_of({0: 0.3, STEPS_150: level}, policy, "one", rate, seed, steps=150) for seed in (100, 101)]

    rows = runs("adaptive", 3e-4, 0.9) + runs("uniform", 2e-4, 0.8) + runs("uniform2", 3e-4, 0.5)
    rows += runs("adaptive", 4.5e-4, 0.7) + runs("uniform", 4.5e-4, 0.7)  # not twice
    checks = runs("adaptive", 6e-4, 0.5) + runs("uniform", 9e-4, 0.4) + runs("adaptive", 9e-4, 0.6)
    assert twice(rows, [], "adaptive").count("\n") == 1
    assert twice(rows, checks, "adaptive").splitlines()[2] == (
        "| one | 0.0009 | 8, 0.0002 | 0.550 | 0.350 | 0.400, 0.400 | 0.0003 | 0.600 | 0.450 | 0.600, 0.600 |"
    )


def test_a_policy_with_cheaper_rollouts_is_ahead_over_tokens():
    def row(policy, seed, tokens, rate=3e-4, success=0.1):
        curve = [
            {"rollouts": 256.0 * at, "tokens": tokens * 256.0 * at, "seconds": 1.0 * at, "expected": success * at}
            for at in range(5)
        ]
        return {"policy": policy, "mix": "chain", "rate": rate, "seed": seed, "steps": 4, "curve": curve}

    rows = [row("adaptive", 0, 10), row("adaptive", 1, 10), row("adaptive_tokens", 0, 5), row("adaptive", 2, 10)]
    rows += [row("adaptive", 0, 10, 2e-4), row("adaptive", 100, 10), row("adaptive", 100, 10, 2e-4, 0.05)]  # its tuning
    rows += [row("adaptive_tokens", 100, 10, 2e-4)]
    assert "chain: 1 seeds (0), 4 steps" in against.compared(rows[:-1], "chain", ["adaptive", "adaptive_tokens"])
    with pytest.raises(SystemExit, match="No seed of chain"):  # not at the tuned rate
        against.compared(rows, "chain", ["adaptive", "adaptive_tokens"])
    rows.pop()
    text = against.compared(rows, "chain", ["adaptive", "adaptive_tokens"])
    assert "chain: 1 seeds (0), 4 steps" in text
    assert "| adaptive | 0.0003 | 0.400 | 10.00 | 0.200 | 0.100 | 0.200 |" in text
    assert "| adaptive_tokens | 0.0003 | 0.400 | 5.00 | 0.200 (+0.000: +0.000) | 0.200 (+0.100: +0.100) |" in text
    with pytest.raises(SystemExit, match="No seed of chain"):
        against.compared(rows, "chain", ["adaptive", "uniform"])


def test_quartiles_are_by_the_start_and_in_equal_parts() -> None:
    start_P = np.array([0.9, 0.1, 0.5, 0.3, 0.7, 0.2, 0.6, 0.4])
    summary = measures.by_difficulty(start_P, 1 - start_P)
    assert [start for start, _ in summary["quartiles"]] == pytest.approx([0.15, 0.35, 0.55, 0.8])
    assert [end for _, end in summary["quartiles"]] == pytest.approx([0.85, 0.65, 0.45, 0.2])
    assert (summary["lost"], summary["gained"], summary["prompts"]) == (1, 2, 8)  # 0.9; 0.1 and 0.2


@pytest.mark.parametrize(
    ("start", "end", "lost", "gained"), [(0.5, 0.25, 0, 0), (0.5, 0.24, 1, 0), (0.25, 0.5, 0, 0), (0.24, 0.5, 0, 1)]
)
def test_the_edges_of_lost_and_gained(start: float, end: float, lost: int, gained: int) -> None:
    summary = measures.by_difficulty([start], [end])
    assert (summary["lost"], summary["gained"]) == (lost, gained)


@pytest.mark.slow
def test_a_size_of_u_shape_is_learned_by_its_own_model(tmp_path, monkeypatch):
    monkeypatch.setitem(run.SIZED, "u_shape_1M", replace(run.SIZED["u_shape_1M"], weights=tmp_path))
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path))):
        run.run(("uniform", "u_shape_1M", 1e-4, 0, 1))
