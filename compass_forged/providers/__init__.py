"""Adapters to the forges, and what they stand on: credentials, the budget gate, and the one door to the network."""
