"""What the causes of a lag are found from, and how they are named."""
