"""Judge the evidence of both ends of a result.

judgement.py   input and output of judging              judge.py       applies the rules
rules.py       the rules, a table                        conditions/    what they check
case.py ends.py crossing.py                              one result, one end, and which way the bytes went
names.py       names of counters and facts in the kernels' output
"""
