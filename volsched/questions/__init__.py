"""Questions about decisions, and their answers for people and programs. Uses the rules, contains none."""
