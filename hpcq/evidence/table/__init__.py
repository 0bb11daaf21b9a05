"""The rows of the table of rules, by what they speak of."""
