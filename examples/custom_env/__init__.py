"""An environment of one's own."""
