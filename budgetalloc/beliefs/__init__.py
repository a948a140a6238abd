"""Beliefs about each prompt's success rate: how they are learned and saved."""
