"""What the evidence of both ends says about a result.

judgement.py   what loading shows and gets back          judge.py       applies the rules
rules.py       the rules, a table                        conditions*.py what they ask
case.py ends.py crossing.py                              one result, one end, and which way the bytes went
names.py       what the kernels call their counters and facts
"""
