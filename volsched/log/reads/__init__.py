"""Reading the store: lists, past states, open bindings, audit queries."""
