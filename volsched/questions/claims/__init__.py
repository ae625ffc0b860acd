"""How claims stand with their volumes and pods, whoever binds them: half done, or used by whom."""
