"""covering.py - tables in which every pair of values of two columns that can occur together does.

    columns = {"strategy": ["single", "ddp"], "world": [1, 2, 4], ...}
    rules   = [(("strategy", "world"), lambda strategy, world: (strategy == "single") <= (world == 1)), ...]
    rows    = Covering(columns, rules).rows(seed)

Greedy, as AETG (Cohen et al. 1997): each row starts with a pair that is still missing and takes, column by column in a
drawn order, the value that brings the most missing pairs; the best of a few such rows stays.  A choice that leaves
another column without a value is taken back, so a pair that no row can have is found to be one.  The same seed gives
the same rows under every Python 3.
"""
import itertools
import random

TRIES = 8  # rows from which the best is taken


class Covering:
    def __init__(self, columns, rules=()):
        self.columns = columns
        self.rules = {name: [rule for rule in rules if name in rule[0]] for name in columns}
        self.near = {name: [other for other in columns if other != name and any(other in rule[0] for rule in self.rules[name])]
                     for name in columns}

    def fits(self, row, name, value):
        """No rule of this column is broken, of those whose columns all have a value."""
        with_it = {**row, name: value}
        return all(holds(*(with_it[n] for n in names)) for names, holds in self.rules[name]
                   if all(n in with_it for n in names))

    def open_values(self, row, name):
        return [value for value in self.columns[name] if self.fits(row, name, value)]

    def complete(self, row, order, gain=lambda row, name, value: 0):
        """The row with values for the columns of order too; None where there are none."""
        if not order:
            return row
        name, rest = order[0], order[1:]
        for value in sorted(self.open_values(row, name), key=lambda value: -gain(row, name, value)):
            longer = {**row, name: value}
            if all(self.open_values(longer, other) for other in self.near[name] if other not in longer):
                done = self.complete(longer, rest, gain)
                if done:
                    return done
        return None

    def pairs(self, row):
        """Of a whole row: names in the columns' order, so that each pair has one form."""
        return itertools.combinations([(name, row[name]) for name in self.columns], 2)

    def every_pair(self):
        for a, b in itertools.combinations(self.columns, 2):
            for x, y in itertools.product(self.columns[a], self.columns[b]):
                yield (a, x), (b, y)

    def one(self, pair, left, draw):
        """A row with this pair and many others that are left."""
        place = {name: i for i, name in enumerate(self.columns)}

        def gain(row, name, value):
            own = (name, value)
            return sum(((own, other) if place[name] < place[other[0]] else (other, own)) in left for other in row.items())

        row = dict(pair)
        if not all(self.fits(row, name, row[name]) if name in row else self.open_values(row, name) for name in self.columns):
            return None
        order = sorted((name for name in self.columns if name not in row), key=lambda name: draw.random())
        return self.complete(row, order, gain)

    def rows(self, seed=1):
        draw, rows, left = random.Random(seed), [], dict.fromkeys(self.every_pair())
        while left:
            pair = next(iter(left))
            tried = [self.one(pair, left, draw) for _ in range(TRIES)]
            if tried[0] is None:  # nor are the others: no row has it
                del left[pair]
                continue
            best = max(tried, key=lambda row: sum(p in left for p in self.pairs(row)))
            rows.append({name: best[name] for name in self.columns})
            for p in self.pairs(best):
                left.pop(p, None)
        return rows


def choose(rows, wanted):
    """A few of the rows, in their order, that have all that wanted(row) yields of the whole table."""
    has = [set(wanted(row)) for row in rows]
    left, chosen = set().union(*has), []
    while left:
        best = max(range(len(rows)), key=lambda i: len(has[i] & left))
        chosen.append(best)
        left -= has[best]
    return [rows[i] for i in sorted(chosen)]
