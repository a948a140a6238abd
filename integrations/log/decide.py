"""Reads the log of a finished run: how its rollouts were spent, and what to compare next.

python decide.py runs/my_run/completions                # any log that `budgetalloc report` reads
python decide.py runs/my_run/completions --policy adaptive --policy ar3po
"""

import argparse
import json

import budgetalloc as ba

HARD = 0.2  # of the rollouts in groups that all failed: more on six of the twelve mixes of the learning benchmark


def decision(seen: dict) -> list[str]:
    """What the figures of a report say, one sentence each. No figure of a log replaces a comparison of runs.

    >>> decision({"share_wasted": 0.5, "share_all_fail": 0.1})[1]
    'adaptive() gained -0.00 to 0.05 of mean success on the mixes of the benchmark with so few groups that failed.'
    """
    failed = seen["share_all_fail"]
    lines = [f"{seen['share_wasted']:.0%} of the rollouts gave no gradient, {failed:.0%} in groups that all failed."]
    gained, few = ("-0.00 to 0.05", "few") if failed < HARD else ("0.04 to 0.15", "many")
    lines.append(
        f"adaptive() gained {gained} of mean success on the mixes of the benchmark with so {few} groups that failed."
    )
    return [*lines, "Compare adaptive() with uniform() on this task: same seeds, same rollouts, held-out success."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--policy", action="append", default=[], help="also replay this policy; repeatable")
    asked = parser.parse_args()
    policies = ["uniform", *asked.policy] if asked.policy else []
    seen = json.loads(ba.report.as_json(ba.report.report(asked.log, policies=policies)))
    print(*decision(seen), sep="\n")
    for row in seen["policies"] or ():
        taught = 100 * row["taught"]
        print(f"{row['policy']}: {taught:.0f} prompts with a gradient per 100 rollouts, {row['modelled']:.0%} modelled")


if __name__ == "__main__":
    main()
