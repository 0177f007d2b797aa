"""Real clusters on one machine for the tests: sshd, network namespaces and Slurm.

Nothing of the machine's own services is used or touched: keys, ports, sockets and configuration
are the tests' own, and every server ends with the process that started it, even when that is
killed.
"""
