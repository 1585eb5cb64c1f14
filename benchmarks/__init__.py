"""What kgo costs, measured side by side with what it is compared to, in one run."""
