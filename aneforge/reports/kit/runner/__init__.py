"""The runners of a kit: source that goes into its folder as it is."""
