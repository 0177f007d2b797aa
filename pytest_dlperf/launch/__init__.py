"""How a case becomes running processes: the plan of a run, and who carries it out."""
