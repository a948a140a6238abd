"""What is believed about each prompt's success rate, how it is learned, and how it is saved."""
