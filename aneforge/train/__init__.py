"""Training on the simulated engine: losses, gradients, optimisers, the trainer, its guards and its experiments."""
