"""Gatekeeper plugin."""
