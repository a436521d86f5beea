"""One truth for every weight: who wrote it last, and which programs have a copy of what."""
