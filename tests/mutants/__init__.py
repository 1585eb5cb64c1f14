"""Small changes that each break one invariant, to see that the tests which claim to hold it turn red."""
