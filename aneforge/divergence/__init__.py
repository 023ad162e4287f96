"""What the published facts say about one op on two chips, before anything is compiled: verdicts, reasons, warnings."""
