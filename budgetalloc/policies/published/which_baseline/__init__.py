"""Published methods that decide which baseline the rewards are compared with."""
