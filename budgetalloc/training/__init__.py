"""What the adapters of all trainers share: options, success from rewards, the record of a step and
its readers."""
