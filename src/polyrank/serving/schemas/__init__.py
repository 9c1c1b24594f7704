"""What requests and answers look like, one client API per file. They know nothing of models."""
