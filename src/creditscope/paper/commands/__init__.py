"""The commands of the paper, one file each; imported when they are called."""
