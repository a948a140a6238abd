"""Published methods that decide in rounds within a step, based on the rewards of earlier rounds.

Every generated rollout counts against the step's budget. Where a prompt's number of rollouts
depends on their rewards, the group mean is biased, and so is every baseline that contains it. The
posterior mean before the step, `baseline=policy.belief(ids_R).mean`, is unbiased.
"""
