"""The HTTP server: a team's models and index behind a port, by the calls that clients know."""
