"""The same graph by other ops: what a rewrite is, where it fits, and the routes that tuning and cures share."""
