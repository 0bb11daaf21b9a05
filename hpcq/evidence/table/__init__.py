"""The rows of the table of rules, by subject."""
