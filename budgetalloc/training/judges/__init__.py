"""Alarms about reward functions that fail: dead, drifting, or at odds with themselves."""
