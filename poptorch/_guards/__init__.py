"""What a program was specialized on, and the check that it still holds."""
