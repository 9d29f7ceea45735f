"""Caches: within a process, and from one run to the next.

`exact` compares values and computes digests of them, `memo` memoizes functions, `views` keeps views and rendered
texts, `state` saves all of that between runs in `files` of the user's own, and `up_to_date` records that nothing is to
be done.
"""
