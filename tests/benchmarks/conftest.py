from functools import cache

import pytest


@pytest.fixture(scope="session")
def load():
    """Loads the model and the tokenizer of a language of benchmarks/learning."""
    pytest.importorskip("trl")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    @cache
    def load(language):
        weights = language.WEIGHTS
        return AutoModelForCausalLM.from_pretrained(weights), AutoTokenizer.from_pretrained(weights)

    return load


@pytest.fixture(scope="session")
def tiny_task():
    """The test-bed's questions, for whose tiny pretrained model a run of benchmarks/scale takes seconds."""
    from questions import Task  # in benchmarks/scale

    from budgetalloc.cli.testbed import skills

    return Task(
        kinds=tuple(skill.letter for skill in skills.SKILLS if not skill.is_trap),
        question=lambda kind, at: f"{kind}{at % 10_000:04d}=",
        score=lambda said, kind, at: float(said == skills.answer(f"{kind}{at % 10_000:04d}=")),
    )
