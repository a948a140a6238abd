"""A tiny language model that compares allocation policies by training it with TRL's GRPO.

`skills` is the task language (no torch), and `language` is the protocol of any task language.
`weights/` holds the pretrained model. `train` runs TRL's GRPOTrainer once and returns the learning
curve. `heldout` measures success on prompts that neither pretraining nor training contains. `demo`
compares two policies.
"""
