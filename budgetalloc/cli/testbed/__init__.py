"""A tiny language model that is trained with TRL's GRPO: for the demo and the benchmarks.

`skills` is the task language (no torch), and `weights/` holds the pretrained model. `train` runs
TRL's GRPOTrainer once and returns the learning curve. `heldout` measures success on prompts that
neither pretraining nor training contains.
"""
