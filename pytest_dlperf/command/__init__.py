"""The command ``pytest-dlperf``: a module per subcommand, which runs no test."""
