"""Changes to the database by people and upkeep: annotations, pruning, merging, reading evidence again."""
