"""What a newer program brings: one source of migrations more."""
