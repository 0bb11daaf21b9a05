"""What rules ask of one end, by where it is counted."""
