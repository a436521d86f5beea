"""What a program costs on IPUs: cycles and tile memory, from its text."""
