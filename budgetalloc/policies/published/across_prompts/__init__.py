"""Published methods that decide how many rollouts each prompt of a batch gets."""
