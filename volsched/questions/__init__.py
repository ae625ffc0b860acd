"""Questions about decisions and their answers for people and programs. Reads the rules, contains none."""
