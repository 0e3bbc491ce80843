"""Policy updates: advantages, losses, batches with shared prompts, training state, the trainer."""
