"""A real tiny language model on which plain TRL GRPO generalises: the place to watch an allocation policy learn.

`skills` is the task language (no torch), `pretrain` made the weights shipped in `weights/`, `train` runs TRL's
GRPOTrainer once and returns its learning curve, `heldout` measures success on prompts that neither pretraining nor
reinforcement ever shows.
"""
