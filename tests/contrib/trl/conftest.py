"""The fixtures of tests/trl."""

from conftest import build, ledger, model_folder, tokenizer  # noqa: F401
