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
