"""What training minimises: one objective per module, which `objectives.registry` finds."""
