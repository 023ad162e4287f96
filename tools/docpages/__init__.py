"""One module for each group of generated pages, and one that reads the commands of written pages."""
