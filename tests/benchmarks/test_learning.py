"""The learning benchmark: its statistics on curves with a known answer, and one short real run that resumes."""

from pathlib import Path

import against  # of benchmarks/learning
import harm
import limit
import numpy as np
import pages
import pytest
import run
import table
import with_features
from twice import twice
from verdict import rivals, verdict

from budgetalloc.offline.intervals import share_reached

STEPS_150 = 150 * 256  # rollouts


def run_of(curve, policy="x", mix="m", rate=3e-4, seed=100, steps=1, **more):
    """A run with this success by rollouts."""
    job = {"policy": policy, "mix": mix, "rate": rate, "seed": seed, "steps": steps}
    return {**job, "rollouts": list(curve), "expected": list(curve.values()), **more}


def run_to(success, *given, **more):
    """A run from success 0.2 to this one."""
    return run_of({0: 0.2, 256: success}, *given, **more)


def flat(success, policy="x", mix="m", rate=3e-4, seed=100, steps=1):
    """A run with the same success at all points, and a pass@64 that is 0.1 higher."""
    curve = {0: success, 256 * steps: success}
    return run_of(curve, policy, mix, rate, seed, steps, pass64=[success + 0.1] * 2)


def test_a_share_that_may_lie_beyond_the_run_ends_in_never():
    rollouts = np.linspace(0, 100, 11)
    ends = np.array([0.70, 0.80, 0.90])  # of the base; the policy's mean curve reaches their mean, 0.8, at 0.8
    base = np.tile(ends[:, None], 11)
    own = np.tile(0.4 + 0.005 * rollouts, (3, 1))
    assert table.share_with_interval(share_reached(own, base, rollouts, 100)) == "0.80 (0.303 to never)"
    assert table.share_with_interval(share_reached(own, base + 0.2, rollouts, 100)) == "never (0.703 to never)"
    assert table.share_with_interval(share_reached(own[:1], base[1:2], rollouts, 100)) == "0.80 (one seed)"


def test_rates_and_group_sizes_are_chosen_on_the_tuning_seeds():
    rows = [flat(0.5, "uniform", rate=1e-4), flat(0.6, "uniform"), flat(0.9, "uniform", rate=1e-4, seed=0)]
    rows += [
        flat(0.65, "uniform4"),
        flat(0.61, "uniform4", seed=101),
        flat(0.9, "adaptive"),
        flat(0.8, "uniform2", "n"),
    ]
    assert table.best_rates(rows, range(100, 200))["uniform", "m"] == 3e-4
    assert table.best_uniform(rows, "m") == "uniform4"


def test_curves_are_read_on_one_grid_of_rollouts_and_points_are_weighed_by_them():
    """A policy that resamples is measured at other rollouts than the rest."""
    curve = {0: 0.4, STEPS_150 / 2: 0.8, 1.01 * STEPS_150: 0.8}
    rows = [run_of({0: 0.5, STEPS_150: 0.6}, steps=150), run_of(curve, seed=0, steps=150)]
    curves, grid = table.collect(rows, "m")
    assert grid[-1] == STEPS_150
    assert curves["x"][0][[0, 3, -1]].tolist() == pytest.approx([0.4, 0.56, 0.8])
    assert run.mean_success(run_of({0: 0.0, 100: 1.0, 400: 1.0})) == pytest.approx((50 + 300) / 400)


def test_runs_on_tuning_seeds_and_variants_are_listed_the_best_first():
    rows = [run_to(0.5, rate=1e-4, seed=101), run_to(0.4, rate=1e-4), run_to(0.8, pass64=[0.9]), run_to(0.9, seed=0)]
    assert table.tuning([*rows, run_to(1, mix="n")], "m").splitlines()[2:] == [
        "| x | 0.0003 | 100 | 0.200 | 0.800 | 0.500 | 0.900 |",
        "| x | 0.0001 | 100, 101 | 0.200 | 0.400, 0.500 | 0.325 | unknown |",
    ]
    job = {"mix": "m", "rate": 3e-4}
    rows = [job | {"policy": "worse", "mean": 0.3, "pass64": 0.6}, job | {"policy": "worse", "mean": 0.3}]
    rows += [job | {"policy": "best", "mean": 0.4, "pass64": 0.7}, run_to(0.8, policy="best", mix="m", pass64=[0.8])]
    assert table.explored(rows).splitlines()[2:] == [
        "| m | 0.0003 | best | 2 | 0.450 +- 0.050 | 0.750 |",
        "| m | 0.0003 | worse | 2 | 0.300 +- 0.000 | unknown |",
    ]


def test_the_verdict_on_runs_of_known_success():
    def row(policy, mix, seed, gain, end):
        curve = {256.0 * at: 0.4 + gain * at for at in range(0, 151, 10)}
        pass64 = np.linspace(0.9, end, len(curve)).tolist()
        return run_of(curve, policy, mix, 1e-4, seed, steps=150, pass64=pass64)

    def seeds(policy, mix, gain, end):
        return [row(policy, mix, seed, gain, end) for seed in (0, 1, 2, 100)]

    rows = [row("uniform", "unsure", seed, 0.001, 0.8) for seed in (0, 1, 2, 100)]
    rows += [row("adaptive", "unsure", at, 0.0002 + 0.001 * at, 0.71 + 0.1 * at) for at in (0, 1, 2)]
    rows.append(row("adaptive", "unsure", 100, 0.001, 0.8))
    rows += seeds("uniform", "fast", 0.001, 0.8) + seeds("adaptive", "fast", 0.004, 0.9)
    rows += seeds("uniform", "slow", 0.002, 0.8) + seeds("adaptive", "slow", 0.001, 0.7)
    rows += [*seeds("uniform2", "fast", 0.002, 0.85), row("uniform", "new", 100, 0.001, 0.8)]
    rows += [{**each, "steps": 75} for name in ("uniform", "adaptive") for each in seeds(name, "short", 0.001, 0.8)]
    text = verdict(rows, "adaptive")
    fast = "| fast | 3 | 0.400 | 2, 0.0001 | 0.550 | 0.850 | 0.0001 | 0.700 | 0.900 | +0.150 (0.150 to 0.150) | +0.050"
    assert f"{fast} (0.050 to 0.050) | 0.50 (0.500 to" in text
    assert "| slow | 3 | 0.400 | 8, 0.0001 | 0.550 | 0.800 | 0.0001 | 0.475 | 0.700 | -0.075 (-0.075 to" in text
    unsure = "| unsure | 3 | 0.400 | 8, 0.0001 | 0.475 | 0.800 | 0.0001 | 0.490 | 0.810 | +0.015 (-0.171 to 0.201)"
    assert f"{unsure} | +0.010 (-0.238 to 0.258) | 0.83 (" in text
    # On the levels of both, from 0.4 to 0.7, the difference grows from 0 to 0.05; up to 0.55 it falls from 0 to -0.15.
    assert [line.split("|")[-2].strip() for line in text.splitlines() if line.startswith(("| fast", "| slow"))] == [
        "-0.075 (-0.075 to -0.075)",
        "+0.025 (0.025 to 0.025)",
    ]
    assert text.splitlines()[-5:] == [
        "- **Mean success over the run**: higher on 1 of 3 mixes, by 0.150. Lower on 1, by 0.075 (`slow`). "
        "No difference was seen on 1 (`unsure`).",
        "- **Coverage at the end (pass@64)**: higher on 1 of 3 mixes, by 0.050. Lower on 1, by 0.100 (`slow`). "
        "No difference was seen on 1 (`unsure`).",
        "- **Coverage at equal success**: higher on 1 of 3 mixes, by 0.025. Lower on 1, by 0.075 (`slow`). "
        "No difference was seen on 1 (`unsure`).",
        "- **Rollouts to uniform's final success**: 0.75 (0.306 to 1.824) of uniform's, as a geometric mean over the "
        "mixes. Never reached on 1 (`slow`), counted as 1.",
        "- **Left out** (fewer than two seeds of 150 steps): `new`, `short`.",
    ]
    short = verdict(rows, "adaptive", short=True)
    assert "| slow | 0.400 | 0.550 | 0.475 | -0.075 (-0.075 to -0.075) | 0.800 | 0.700 |" in short


def test_what_harms_at_the_rate_of_uniform_groups():
    def seeds(policy, mix, rate, ends, pass64):
        curves = [{0: 0.4, STEPS_150: 0.4 + end} for end in ends]
        return [run_of(curve, policy, mix, rate, at, 150, pass64=[pass64]) for at, curve in enumerate(curves)]

    rows = seeds("uniform4", "few", 3e-4, [0.2, 0.2], 0.8) + seeds("retry", "few", 3e-4, [0.4, 0.4], 0.7)
    rows += seeds("retry", "few", 2e-4, [0.0, 0.0], 0.1)  # not at the rate of the groups
    rows += seeds("uniform4", "alike", 3e-4, [0.2, 0.2], 0.8) + seeds("retry", "alike", 3e-4, [0.1, 0.4], 0.8)
    tuning = [run_of({0: 0.4, STEPS_150: 0.6}, "uniform2", "u_shape", 2e-4, 100, 150)]
    rows += [*tuning, *seeds("uniform2", "u_shape", 2e-4, [0.4], 0.8), *seeds("retry", "u_shape", 2e-4, [0.4], 0.8)]
    found = {pool.name: pool for pool in harm.pools(rows, "retry")}
    assert list(found) == ["few", "alike"]  # u_shape has one seed
    assert found["few"].harmed == ["pass@64"]
    assert found["alike"].harmed == []
    assert found["few"].gains == pytest.approx(np.array([[0.1, 0.1], [0.2, 0.2], [-0.1, -0.1]]))
    text = harm.table(list(found.values())).splitlines()
    assert "| few | 2 | 4, 0.0003 | 0.500 | 0.600 | 0.800 | +0.100 (0.100 to 0.100) | +0.200 (0.200 to" in text[2]
    assert text[-2:] == [
        "- **Below uniform's**: 1 of 2 pools: `few` (pass@64).",
        "- **The lowest upper end of an interval**: -0.100 on `few`.",
    ]


def test_rivals_are_those_with_runs_on_all_mixes():
    def seeds(policy, mix, level, *pass64):
        more = {"pass64": pass64} if pass64 else {}
        curve = {0: level, STEPS_150: level}
        return [run_of(curve, policy, mix, 1e-4, seed, 150, **more) for seed in (0, 1, 100)]

    rows = seeds("adaptive", "one", 0.6, 0.7) + seeds("adaptive", "two", 0.5, 0.7)
    rows += seeds("spo", "one", 0.4, 0.8) + seeds("spo", "two", 0.4)  # recorded on one of the two
    rows += seeds("vade", "one", 0.1, 0.1) + seeds("uniform", "one", 0.1) + seeds("uniform", "two", 0.1)
    one, two, both = (
        rivals([each for each in rows if each["mix"] in mixes], "adaptive").splitlines()[2:]
        for mixes in (["one"], ["two"], ["one", "two"])
    )
    assert [line.split()[1] for line in one] == ["spo", "vade"]
    assert two == ["| spo | 2 | +0.100 (0.100 to 0.100) | +0.100 on two | not recorded | not recorded |"]
    assert both == [
        "| spo | 4 | +0.150 (0.150 to 0.150) | +0.100 on two | -0.100 (-0.100 to -0.100), 1 mix | -0.100 on one |"
    ]


PAIRED = [
    flat(mean, name, steps=150, seed=seed)
    for name, mean in (("uniform4", 0.5), ("sampled", 0.6))
    for seed in (0, 1, 100)
]


def test_a_variant_is_paired_over_the_seeds_that_all_three_have():
    rows = [*PAIRED, *(flat(0.4, "uniform", seed=seed, steps=150) for seed in (0, 1, 2, 100))]
    text = [flat(mean, "adaptive_text", seed=seed) for seed, mean in ((0, 0.65), (1, 0.75), (2, 0.1), (100, 0.1))]
    text.append(flat(0.0, "sampled", seed=0))  # of the same file, and not the table's
    (line,) = list(with_features.lines(rows, text))[2:]
    assert line.startswith("| `m` | 2 | 0.500 / 0.600 | 0.600 / 0.700 | 0.700 / 0.800 | +0.100 (")
    assert "| +0.200 (" in line
    assert len(list(with_features.lines(rows, text[:1]))) == 2  # one seed is no row


def test_a_share_is_of_the_gain_of_the_best_oracle_over_the_best_uniform():
    rows = [flat(0.8 - 0.02 * at, name, seed=seed) for seed in (0, 1) for at, name in enumerate(limit.WEIGHTS)]
    rows += [flat(mean, name, seed=seed) for name, mean in (("uniform", 0.5), ("uniform4", 0.6)) for seed in (0, 1)]
    rows += [flat(mean, "adaptive", seed=seed) for seed, mean in ((0, 0.7), (1, 0.7), (2, 0.1))]
    rows.append(flat(0.9, "adaptive", rate=2e-4, seed=0))  # not on the other seed
    head, _, line = limit.lines(rows, ["adaptive", "spo"])
    assert head == "| mix | seeds | best uniform | `adaptive` | `spo` | `oracle` | `oracle_13` | `oracle_02` | share |"
    assert line == (
        "| `m` | 0, 1 | 0.600 / 0.70 | 0.700 / 0.80 |  | 0.800 / 0.90 | 0.780 / 0.88 | 0.760 / 0.86 | 0.50 |"
    )
    assert list(limit.lines([*rows, flat(0.79, "uniform", seed=0), flat(0.79, "uniform", seed=1)], ["adaptive"]))[
        2
    ].endswith("| no gain |")


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
        curve = {256.0 * at: success * at for at in range(5)}
        costs = {"tokens": [tokens * rollouts for rollouts in curve], "seconds": [0.0, 1.0, 2.0, 3.0, 4.0]}
        return run_of(curve, policy, "chain", rate, seed, 4, **costs)

    rows = [row("adaptive", 0, 10), row("adaptive", 1, 10), row("adaptive_tokens", 0, 5), row("adaptive", 2, 10)]
    rows += [row("adaptive", 0, 10, 2e-4), row("adaptive", 100, 10), row("adaptive", 100, 10, 2e-4, 0.05)]  # its tuning
    text = against.compared(rows, "chain", ["adaptive", "adaptive_tokens"])
    assert "chain: 1 seeds (0), 4 steps" in text
    assert "| adaptive | 0.0003 | 0.400 | 10.00 | 0.200 | 0.100 | 0.200 |" in text
    assert "| adaptive_tokens | 0.0003 | 0.400 | 5.00 | 0.200 (+0.000: +0.000) | 0.200 (+0.100: +0.100) |" in text
    for more, name in (([row("adaptive_tokens", 100, 10, 2e-4)], "adaptive_tokens"), ([], "uniform")):
        with pytest.raises(SystemExit, match="No seed of chain"):  # not at the tuned rate; not run
            against.compared([*rows, *more], "chain", ["adaptive", name])


def test_what_a_script_prints_takes_the_place_of_what_it_printed_before():
    page = "# Page\n\n## One\n\nWords.\n\n| a |\n|---|\n| 1 |\n| 2 |\n\n| a |\n|---|\n\n- Best: 2."
    page += "\n\n## Two\n\n- Best: 0.\n"
    first, second = "| a |\n|---|\n| 3 |", "| a |\n|---|\n| 4 |"
    new = pages.replaced(page, "## One", f"{first}\n\n{second}\n\n- Best: 6.")
    assert new == f"# Page\n\n## One\n\nWords.\n\n{first}\n\n{second}\n\n- Best: 6.\n\n## Two\n\n- Best: 0.\n"
    for heading, text, error in (
        ("## Three", first, "No section '## Three'"),
        ("## Two", first, "No table in '## Two'"),
        ("## Two", "- Worst: 1.", "0 lines in '## Two' begin with '- Worst:'"),
    ):
        with pytest.raises(SystemExit, match=error):
            pages.replaced(page, heading, text)


def test_a_run_is_resumed_and_a_policy_of_a_file_has_a_name_of_its_own(tmp_path, capsys):
    pytest.importorskip("trl")
    path, out = tmp_path / "mine.yaml", tmp_path / "results.jsonl"
    path.write_text("policy: knapsack\nbudget: {cap: 16}\ncallback: {ledger: nowhere.jsonl}\n")
    words = ["--policy", "uniform", "--config", str(path), "--mix", "u_shape", "--seed", "0", "--rate", "3e-4"]
    words += ["--steps", "1", "--out", str(out)]
    run.main(words)
    assert "2 runs, 0 of them done before" in capsys.readouterr().out
    lines = out.read_text().splitlines()
    out.write_text(lines[0] + "\n" + lines[1][: len(lines[1]) // 2])  # killed while it wrote the second
    run.main(words)
    assert "2 runs, 1 of them done before" in capsys.readouterr().out
    rows = run.read(out)
    assert [row["policy"].partition("-")[0] for row in rows] == ["uniform", "mine"]
    for row in rows:
        assert row["rollouts"] == [0, 256]
        assert all(len(row[name]) == 2 for name in run.COLUMNS)
        assert 0.1 < row["expected"][0] < row["pass64"][0] < 1.0
        assert 0 < row["mixed"] < 1
    assert not Path("nowhere.jsonl").exists()  # runs side by side would share it
    run.main(["--policy", "uniform", "--uses", "2", *words[4:]])
    twice = run.read(out)[-1]
    assert (twice["policy"], twice["rollouts"]) == ("uniform x2", [0, 256])
    assert twice["expected"][0] == rows[0]["expected"][0]
    assert twice["expected"][1] != rows[0]["expected"][1]
    assert 0 < twice["clipped"] < 0.1  # a second step on the same rollouts
