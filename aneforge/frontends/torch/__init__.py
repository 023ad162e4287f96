"""PyTorch: modules and exported programs (``.pt2``)."""
