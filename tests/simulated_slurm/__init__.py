"""A Slurm without a cluster: our own sinfo, sbatch, squeue, sacct, scontrol and scancel, for thousands of nodes.

    bin/squeue … (bash, 2 ms) --one TCP connection--> server.py -> commands.py (words and formats) -> machine.py (jobs, nodes)
                                                                                                          |
    a job of hpcq: stand_in.py writes the files that its script would leave; any other script is really run <-+

It answers in the formats that hpcq/scheduler/slurm/ asks for, as Slurm 22.05 and 24.11 print them; the scheduler contract
runs against it as against the real ones. Only tests and bench/scale.py use it.
"""
