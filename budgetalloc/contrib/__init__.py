"""Optional features: tested, with weaker promises of stability than the core, which imports them
only for an option that asks for it."""
