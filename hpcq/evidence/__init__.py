"""Judge the evidence of both ends of a result.

case.py        one result, one end, and which way the bytes went; input and output of judging
rules.py       the rules, a table                        judge.py       applies them
names.py       names of counters and facts in the kernels' output
"""
