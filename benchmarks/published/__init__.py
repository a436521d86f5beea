"""Networks whose throughput on IPUs was published, for the accuracy of estimates."""
