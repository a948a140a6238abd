"""Published methods that generate more rollouts than they train on: uniform counts, then a rule of
`downselect`."""
