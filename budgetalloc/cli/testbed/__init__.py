"""A tiny language model on which TRL's plain GRPO generalises, so that allocation policies can be compared by training.

`skills` is the task language (no torch), and `language` says what a run needs of any task language. `weights/` holds
the pretrained model. `train` runs TRL's GRPOTrainer once and returns the learning curve, `heldout` measures success on
prompts that neither pretraining nor training shows, and `demo` compares two policies.
"""
