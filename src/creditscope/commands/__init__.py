"""The commands, one file each. Importing them imports no torch; each imports what it uses when it runs."""
