"""covering.py - tables in which every pair of values of two columns that can occur together does; of some, every triple.

    columns = {"strategy": ["single", "ddp"], "world": [1, 2, 4], ...}
    rules   = [(("strategy", "world"), lambda strategy, world: (strategy == "single") <= (world == 1)), ...]
    rows    = Covering(columns, rules, dense=("strategy", "world")).rows(seed)

Greedy, as AETG (Cohen et al. 1997): each row starts with a pair that is still missing and takes, column by column in a
drawn order, the value that brings the most of what is missing; the best of a few such rows stays.  A choice that leaves
another column without a value is taken back, so a pair that no row can have is found to be one.  The same seed gives
the same rows under every Python 3.
"""
import itertools
import random

TRIES = 8  # rows from which the best is taken


class Covering:
    def __init__(self, columns, rules=(), dense=()):
        self.columns, self.dense = columns, dense
        self.rules = {name: [rule for rule in rules if name in rule[0]] for name in columns}
        self.near = {name: [other for other in columns if other != name and any(other in rule[0] for rule in self.rules[name])]
                     for name in columns}

    def decided(self, row, name):
        """The rules of this column whose other columns have values all."""
        return [rule for rule in self.rules[name] if all(n == name or n in row for n in rule[0])]

    def fits(self, row):
        """No rule is broken."""
        return all(holds(*(row[n] for n in names)) for name in row for names, holds in self.decided(row, name))

    def open_values(self, row, name):
        """Those that break no rule of the column, beside what the row has."""
        rules, longer, found = self.decided(row, name), dict(row), []
        for value in self.columns[name]:
            longer[name] = value
            if all(holds(*(longer[n] for n in names)) for names, holds in rules):
                found.append(value)
        return found

    def complete(self, row, order, gain):
        """The row with values for the columns of order too; None where there are none."""
        if not order:
            return row
        name, rest = order[0], order[1:]
        values = self.open_values(row, name)
        if len(values) > 1:
            values.sort(key=gain(row, name), reverse=True)
        for value in values:
            longer = {**row, name: value}
            if all(self.open_values(longer, other) for other in self.near[name] if other not in longer):
                done = self.complete(longer, rest, gain)
                if done:
                    return done
        return None

    def sets(self):
        """Names of columns, of whose values every combination is wanted: all pairs, and triples of self.dense."""
        return [*itertools.combinations(self.columns, 2), *itertools.combinations(self.dense, 3)]

    def wanted(self):
        for names in self.sets():
            for values in itertools.product(*(self.columns[name] for name in names)):
                yield tuple(zip(names, values))

    def has(self, row):
        """What a whole row has of all that is wanted."""
        return [tuple((name, row[name]) for name in names) for names in self.sets()]

    def gain(self, left):
        """How much of what is left a row gets by each value of one more column."""
        sets = {name: [(names, set(names) - {name}) for names in self.sets() if name in names] for name in self.columns}

        def of(row, name):
            got = {n: (n, v) for n, v in row.items()}
            whole = [names for names, others in sets[name] if got.keys() >= others]

            def by(value):
                got[name] = (name, value)
                return sum(tuple(map(got.__getitem__, names)) in left for names in whole)

            return by

        return of

    def one(self, wanted, gain, draw):
        """A row with this and much else that is left; None where there is none."""
        row = dict(wanted)
        if not self.fits(row) or not all(self.open_values(row, name) for name in self.columns if name not in row):
            return None
        order = sorted((name for name in self.columns if name not in row), key=lambda name: draw.random())
        return self.complete(row, order, gain)

    def rows(self, seed=1):
        draw, rows, left = random.Random(seed), [], dict.fromkeys(self.wanted())
        gain = self.gain(left)
        while left:
            first = next(iter(left))
            tried = [self.one(first, gain, draw) for _ in range(TRIES)]
            if tried[0] is None:  # nor are the others: no row has it
                del left[first]
                continue
            best = max(tried, key=lambda row: sum(one in left for one in self.has(row)))
            rows.append({name: best[name] for name in self.columns})
            for one in self.has(best):
                left.pop(one, None)
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
