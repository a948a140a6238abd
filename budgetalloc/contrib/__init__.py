"""What is useful and tested, and promises less than the core, which imports it only for an
option that asks for it."""
