# SPDX-License-Identifier: Apache-2.0
"""Least squares with numbers that are not negative, for a handful of them."""


def solve(matrix, right):
    """Gauss's elimination, the largest pivot first."""
    rows = [[*row, value] for row, value in zip(matrix, right)]
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        if abs(rows[pivot][i]) < 1e-300:
            raise ValueError("the points do not tell the numbers apart: measure more kinds of them")
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, n):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    found = [0.0] * n
    for i in reversed(range(n)):
        found[i] = (rows[i][n] - sum(rows[i][j] * found[j] for j in range(i + 1, n))) / rows[i][i]
    return found


def fit(equations, right):
    """The numbers for which equations · numbers is nearest to right. One that would be negative is 0."""
    kept = list(range(len(equations[0])))
    while kept:
        scale = {i: max(abs(row[i]) for row in equations) or 1.0 for i in kept}
        columns = [[row[i] / scale[i] for row in equations] for i in kept]
        matrix = [[sum(a * b for a, b in zip(one, other)) for other in columns] for one in columns]
        found = solve(matrix, [sum(a * b for a, b in zip(column, right)) for column in columns])
        if min(found) >= 0:
            numbers = dict(zip(kept, (value / scale[i] for value, i in zip(found, kept))))
            return [numbers.get(i, 0.0) for i in range(len(equations[0]))]
        kept.pop(found.index(min(found)))
    return [0.0] * len(equations[0])
