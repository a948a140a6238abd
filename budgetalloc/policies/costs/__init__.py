"""What rollouts cost in tokens, in trees and over a run."""
