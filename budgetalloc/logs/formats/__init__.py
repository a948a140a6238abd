"""Formats of files: JSON lines, Arrow and parquet, W&B's record file, and the trace records of `verifiers`."""
