"""Programs in the place of the seed systems' trainers: their flags, their processes, their logs.

They need no device and train nothing. Their flags are read as strictly as the trainers read theirs,
the processes of a run have to find each other by the addresses and ports that they were given, and
what a step takes is declared, so that a test knows the throughput of a run whose flags are right.
"""
