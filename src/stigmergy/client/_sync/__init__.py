# Made from ../_async/__init__.py by scripts/generate_client.py; `make fix` makes it again.
