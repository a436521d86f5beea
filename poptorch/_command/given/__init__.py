"""What commands are given: models, compiled programs, arrays and settings."""
