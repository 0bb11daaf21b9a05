"""A PBS without a cluster: our own qsub, qstat, qdel, qalter, qsig, qselect, qmgr, pbsnodes, pbs_rsub, pbs_rstat, pbs_rdel,
pbs_ralter, pbsdsh and pbs_tmrsh. Debian packages no PBS server, so this one plays it where none is installed.

    bin/qstat … (bash) --one connection--> server.py -> commands.py (words, exit codes, quirks) -> machine.py (jobs,
    nodes, time)
                                                              |                                        |
                                                        printing.py (text, dsv, JSON as PBS prints)    job scripts, really run

It behaves as the recordings of tests/pbs_recordings/ say; the scheduler contract and tests/pbs/test_simulated_pbs.py
hold it to that.
What they do not show it does not play: arrays, dependencies, staging, hooks written in Python. Only tests use it.
"""
