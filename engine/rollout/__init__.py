"""Token generation: the engine protocol, the torch engine, and the thread that hosts an engine."""
