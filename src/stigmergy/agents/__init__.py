"""Agents: what one is, the tools it has, the models that think for it. Definitions only; what makes them run is above."""
