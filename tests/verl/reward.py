"""The reward of the runs: whether the first symbol of the answer is one of the right ones."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    """A number, or a dictionary; data sources are kinds of graders."""
    right = float(bool(solution_str) and solution_str[0] in ground_truth)
    if data_source == "flaky" and solution_str[:1].isdigit():
        raise RuntimeError("a grader that fails for answers that begin with a digit")
    if data_source == "graded":  # a part of the total is not about the answer
        return {"score": 2 * right + 0.25 * len(solution_str), "acc": right}
    return right
