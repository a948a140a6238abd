"""Published methods that decide in rounds within a step, based on the rewards of earlier rounds.

Every rollout that is generated counts against the step's budget. If the number of a prompt's rollouts depends on their
rewards, the mean of its group is biased, and so is every baseline that contains the mean. The posterior mean before the
step does not depend on them: `baseline=policy.belief(ids_R).mean` keeps each rollout's gradient unbiased.
"""
