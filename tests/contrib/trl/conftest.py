"""The fixtures of tests/trl."""

from conftest import begun, build, ledger, model_folder, tokenizer  # noqa: F401
