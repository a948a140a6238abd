"""Published methods that decide in rounds within a step, on the rewards of the rounds before.

Every rollout that is generated counts against the step's budget. Where a prompt gets more rollouts *because* of its
rewards, the mean of its group is biased, and so is every baseline that contains it. The posterior mean from before the
step is not: `baseline=policy.belief(ids_R).mean` keeps each rollout's gradient unbiased.
"""
