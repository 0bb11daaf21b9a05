"""What people see, read and plug in: verbs about nodes, tables on a terminal, bad calls, the page, other programs."""
