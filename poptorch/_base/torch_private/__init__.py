"""Every use of private names of torch; tests name each one."""
