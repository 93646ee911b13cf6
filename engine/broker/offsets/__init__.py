"""What groups have committed and pulled on each queue."""
