"""Which of many candidates is at fault: commits, images, differences between two nights."""
