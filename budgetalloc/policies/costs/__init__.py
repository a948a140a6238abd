"""What rollouts cost in tokens, in trees and over a run, and bandits for a setting of a run."""
