"""What training keeps beside parameters: averages, and the state of optimizers."""
