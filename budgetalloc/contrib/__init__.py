"""What is useful and tested, and promises less than the core, which imports nothing of it."""
