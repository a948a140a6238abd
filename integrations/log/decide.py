"""From the log of a finished run to a decision: is there something to gain, and which policy is worth a second run?

python decide.py runs/my_run/completions                # any log that `budgetalloc report` reads
python decide.py runs/my_run/completions --policy adaptive --policy ar3po
"""

import argparse
import json

import budgetalloc as ba

WASTED = 0.2  # below this share of rollouts without a gradient there is little to gain
EXPLAINED = 0.1  # below this share of the variance of success, beliefs know too little to choose by


def decision(seen: dict) -> list[str]:
    """What the figures of a report advise, a sentence each. The two thresholds above are judgement: set your own.

    >>> decision({"share_wasted": 0.1, "explained": 0.5})[-1]
    'Keep what you have: most rollouts have a gradient already.'
    """
    wasted, explained = seen["share_wasted"], seen["explained"]
    lines = [f"{wasted:.0%} of the rollouts gave no gradient under a group baseline."]
    if wasted < WASTED:
        return [*lines, "Keep what you have: most rollouts have a gradient already."]
    if explained is None:
        return [*lines, "No prompt returned, so the log cannot say whether beliefs would have helped."]
    lines.append(f"Beliefs explain {explained:.0%} of the variance of success one step ahead.")
    if explained < EXPLAINED:
        return [*lines, "Past rewards tell little here. Try groups of another size first, or a policy in rounds."]
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
        share = f"{row['mixed_rollouts']:.0%} of its rollouts in mixed groups, " if row["min_group"] > 1 else ""
        print(f"{row['policy']}: {share}signal {row['signal']:.0%}, {row['modelled']:.0%} of its rewards modelled")


if __name__ == "__main__":
    main()
