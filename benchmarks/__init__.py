"""Measurements. Nothing here is a test: speed is reported, never asserted."""
