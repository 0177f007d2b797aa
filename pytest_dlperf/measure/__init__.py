"""How a case gets measured: its logs are read, or it is launched; each case once per session."""
