"""Published methods that decide which prompts are rolled out."""
