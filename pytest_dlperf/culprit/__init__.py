"""Which of many candidates is at fault: commits, or differences between two sessions."""
