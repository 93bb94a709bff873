"""The hands: each module does one thing to a server, and says how it went. They decide nothing."""
