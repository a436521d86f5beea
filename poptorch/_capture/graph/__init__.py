"""What a captured graph consists of, and what is known about its nodes."""
