"""Where two chips give different numbers for one graph."""
