"""A real tiny language model on which plain TRL GRPO generalises: the place to watch an allocation policy learn.

`skills` and `growing` are two task languages (no torch) and `language` makes values of them, `pretrain` made the
weights shipped in `weights/` and `weights_growing/`, `train` runs TRL's GRPOTrainer once and returns its learning
curve, `heldout` measures success on prompts that neither pretraining nor reinforcement ever shows.
"""
