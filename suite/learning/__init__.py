"""Which implementation for which shape, learned from stored times: a decision tree that a person can read.

`points` turns rows into times by shape, `score` says what a choice costs against the best that was measured, `fit`
grows a tree and scores it on shapes that it has not seen, and `tree` is what comes out: it chooses, refuses to
extrapolate, and is written out as Python, as JSON and as split points. `ranges` finds ranges of one size for a tuned
table. Pure, but for `fit`, which imports scikit-learn.
"""
