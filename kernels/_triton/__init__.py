"""What families' Triton implementations share."""
