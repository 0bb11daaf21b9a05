"""No impossible or flattering number, and a known line measured as it is."""
