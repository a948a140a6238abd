"""What depends on the experimental parts of TRL, and the reuse of stored responses."""
