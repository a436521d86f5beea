"""What a program says about its operations: annotations, blocks, stages, strategy rows."""
