/*
 * combine_loops_impl.h - the loops of combine.c for one element type.
 *
 * Included once for each type, with
 *
 *     NAME(x)      x with the type in its name
 *     ELEM, VALUE  what stands in the arrays; what is computed with and stands in blocks
 *     LOAD(x)      a VALUE of an ELEM
 *     APPLY        of (op, left, right)
 *
 * so it has no include guard; it takes the definitions away again.  op is a constant wherever
 * a loop calls APPLY: each loop is one formula.
 */

LS_INLINE VALUE NAME(tree_1)(ls_reduce_op op, const ELEM *const *p, int64_t i)
{
    (void)op;
    return LOAD(p[0][i]);
}

LS_INLINE VALUE NAME(tree_2)(ls_reduce_op op, const ELEM *const *p, int64_t i)
{
    return APPLY(op, LOAD(p[0][i]), LOAD(p[1][i]));
}

LS_INLINE VALUE NAME(tree_4)(ls_reduce_op op, const ELEM *const *p, int64_t i)
{
    return APPLY(op, NAME(tree_2)(op, p, i), NAME(tree_2)(op, p + 2, i));
}

LS_INLINE VALUE NAME(tree_8)(ls_reduce_op op, const ELEM *const *p, int64_t i)
{
    return APPLY(op, NAME(tree_4)(op, p, i), NAME(tree_4)(op, p + 4, i));
}

LS_INLINE void NAME(take_by)(VALUE (*tree)(ls_reduce_op, const ELEM *const *, int64_t),
                             ls_reduce_op op, VALUE *restrict y, const void *const *in, int n,
                             int64_t first, int64_t count)
{
    const ELEM *p[MOST_LEAVES];

    for (int k = 0; k < n; k++)
        p[k] = (const ELEM *)in[k] + first;
    for (int64_t i = 0; i < count; i++)
        y[i] = tree(op, p, i);
}

/* y = the tree over elements first .. of n inputs, n <= leaves_at_once(op) a power of two. */
LS_CLONES static void NAME(take)(ls_reduce_op op, void *y, const void *const *in, int n,
                                 int64_t first, int64_t count)
{
    if (n == 1)
        NAME(take_by)(NAME(tree_1), LS_SUM, y, in, 1, first, count);
    else if (op == LS_MIN)
        NAME(take_by)(NAME(tree_2), LS_MIN, y, in, 2, first, count);
    else if (op == LS_MAX)
        NAME(take_by)(NAME(tree_2), LS_MAX, y, in, 2, first, count);
    else if (op == LS_PROD)
        NAME(take_by)(NAME(tree_2), LS_PROD, y, in, 2, first, count);
    else if (n == 2)
        NAME(take_by)(NAME(tree_2), LS_SUM, y, in, 2, first, count);
    else if (n == 4)
        NAME(take_by)(NAME(tree_4), LS_SUM, y, in, 4, first, count);
    else
        NAME(take_by)(NAME(tree_8), LS_SUM, y, in, 8, first, count);
}

LS_INLINE void NAME(join_by)(ls_reduce_op op, VALUE *restrict y, const VALUE *restrict right,
                             int64_t      count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = APPLY(op, y[i], right[i]);
}

/* y = y op right, both blocks. */
LS_CLONES static void NAME(join)(ls_reduce_op op, void *y, const void *right, int64_t count)
{
    if (op == LS_MIN)
        NAME(join_by)(LS_MIN, y, right, count);
    else if (op == LS_MAX)
        NAME(join_by)(LS_MAX, y, right, count);
    else if (op == LS_PROD)
        NAME(join_by)(LS_PROD, y, right, count);
    else
        NAME(join_by)(LS_SUM, y, right, count);
}

#undef NAME
#undef ELEM
#undef VALUE
#undef LOAD
#undef APPLY
