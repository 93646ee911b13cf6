"""What a broker does as a master with slaves, or as a slave."""
