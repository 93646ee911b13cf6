"""What is computed from the facts: one file a gold table, and the steps that several start from."""
