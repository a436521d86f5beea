"""Recording: each ATen call becomes a node of an FX graph."""
