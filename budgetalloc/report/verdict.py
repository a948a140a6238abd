"""The first line of a report: healthy, or what to look at."""

from budgetalloc.report.findings import percent
from budgetalloc.report.forecast import share
from budgetalloc.report.summary import Report

__all__ = ["verdict"]

_FALL = 0.02  # of success, from the first to the last tenth of the rollouts, that is worth a look


def verdict(report: Report) -> str:
    """One line: the run is healthy, or what to look at."""
    waste, (gone, steps) = report.waste, report.missing
    concerns = ["what the log leaves open (CAREFUL)"] if report.doubts else []
    if gone:
        concerns.append(f"{gone:,} of {steps:,} steps, which are missing")
    if 2 * waste.wasted > waste.rollouts:
        concerns.append(
            f"{percent(share(waste.wasted, waste.rollouts))} of the rollouts without a gradient"
        )
    if waste.forecast.explained < 0:
        concerns.append("success, which is predicted worse than by a constant")
    time = waste.over_time(10)
    first, last = time[0]["success"], time[-1]["success"]
    if len(time) == 10 and last < first - _FALL:
        concerns.append(f"success, which fell from {first:.2f} to {last:.2f}")
    return f"Look at {'; '.join(concerns)}." if concerns else "Healthy."
