"""What is known of other people's trainers, as data: their lines, and what their numbers are of."""
