"""What runs the finished graphs of an exported model instead of torch, one engine per file."""
