"""What would happen if: changes tried on a copy in memory."""
