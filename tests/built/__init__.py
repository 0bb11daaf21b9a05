"""The kernel programs as they are built: fuzzed, sanitized, and on other libraries than this node's."""
