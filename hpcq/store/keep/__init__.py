"""What people and upkeep change in the database: annotations, pruning, merging, reading evidence again."""
