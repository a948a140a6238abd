"""Parts and policies that are useful, tested, and promise less than the rest."""
