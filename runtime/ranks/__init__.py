"""The processes of a program that runs several times at once: who they are, and how they find each other."""
