/*
 * tree_sum.c - the binary counter of partial sums.
 */
#include "core/tree_sum.h"

#include <string.h>

#include "core/kernels/elementwise.h"

void ls_tree_sum_init(ls_tree_sum *t)
{
    *t = (ls_tree_sum){0};
}

void ls_tree_sum_close(ls_tree_sum *t)
{
    for (int i = 0; i < LS_TREE_LEVELS; i++)
        ls_storage_release(t->part[i]);
    ls_tree_sum_init(t);
}

static int64_t length(const ls_storage *s)
{
    return (int64_t)(s->bytes / sizeof(ls_real));
}

/* left + right, in left's memory. */
static ls_storage *join(ls_storage *left, ls_storage *right)
{
    ls_k_add_to(left->data, right->data, length(left));
    ls_storage_release(right);
    return left;
}

/* A node of 2^level leaves meets its neighbours. */
static void carry(ls_tree_sum *t, ls_storage *node, int level)
{
    for (; t->part[level]; level++) {
        node           = join(t->part[level], node);
        t->part[level] = NULL;
    }
    t->part[level] = node;
    t->count++;
}

static ls_status check_leaf(const ls_tree_sum *t, size_t bytes)
{
    if (t->count + 1 >= (uint64_t)1 << LS_TREE_LEVELS)
        return ls_fail(LS_EINVAL, "tree sum: more than 2^%d leaves", LS_TREE_LEVELS);
    for (int i = 0; i < LS_TREE_LEVELS; i++)
        if (t->part[i] && t->part[i]->bytes != bytes)
            return ls_fail(LS_ESHAPE, "tree sum: a leaf of %zu bytes after leaves of %zu",
                           bytes, t->part[i]->bytes);
    return LS_OK;
}

ls_status ls_tree_sum_push(ls_tree_sum *t, ls_storage *leaf)
{
    ls_status status = check_leaf(t, leaf->bytes);

    if (!status && leaf->refs != 1)
        status = ls_fail(LS_ESTATE, "tree sum: a leaf with %d references, want 1", leaf->refs);
    if (status)
        ls_storage_release(leaf);
    else
        carry(t, leaf, 0);
    return status;
}

ls_status ls_tree_sum_push_zero(ls_tree_sum *t, size_t bytes)
{
    ls_status   status = check_leaf(t, bytes);
    ls_storage *node   = t->part[0];

    if (status)
        return status;
    if (node) {
        ls_k_fill(node->data, 0, length(node), true);
        t->part[0] = NULL;
        carry(t, node, 1);
        return LS_OK;
    }
    node = ls_storage_new(bytes, LS_MEM_GRADS);
    if (!node)
        return LS_ENOMEM;
    memset(node->data, 0, bytes);
    carry(t, node, 0);
    return LS_OK;
}

ls_status ls_tree_sum_fill(ls_tree_sum *t, uint64_t leaves, size_t bytes)
{
    ls_status status = LS_OK;

    while (t->count < leaves && !status)
        status = ls_tree_sum_push_zero(t, bytes);
    return status;
}

ls_storage *ls_tree_sum_finish(ls_tree_sum *t)
{
    ls_storage *sum = NULL;

    for (int i = 0; i < LS_TREE_LEVELS; i++)
        if (t->part[i])
            sum = sum ? join(t->part[i], sum) : t->part[i];
    ls_tree_sum_init(t);
    return sum;
}

static int highest(const ls_tree_sum *t)
{
    int level = LS_TREE_LEVELS - 1;

    while (level >= 0 && !t->part[level])
        level--;
    return level;
}

/* Joins from the lowest part up, the last of them into out. */
static void end_into(ls_tree_sum *t, ls_storage *node, void *out)
{
    int top = highest(t);

    for (int i = 0; i < top; i++)
        if (t->part[i]) {
            node       = node ? join(t->part[i], node) : t->part[i];
            t->part[i] = NULL;
        }
    const ls_storage *last = top >= 0 ? t->part[top] : NULL;
    if (last && node)
        ls_k_add(out, last->data, node->data, length(node));
    else if (last && out != last->data)
        memcpy(out, last->data, last->bytes);
    else if (node && out != node->data)
        memcpy(out, node->data, node->bytes);
    ls_storage_release(node);
    ls_tree_sum_close(t);
}

ls_status ls_tree_sum_end(ls_tree_sum *t, ls_storage *leaf, void *out, size_t bytes)
{
    ls_status status = LS_OK;

    if (!leaf) {
        status = ls_tree_sum_push_zero(t, bytes);
    } else if (leaf->bytes != bytes || leaf->refs != 1) {
        status = ls_fail(LS_ESHAPE,
                         "tree sum: a last leaf of %zu bytes and %d references, want %zu and 1",
                         leaf->bytes, leaf->refs, bytes);
        ls_storage_release(leaf);
    } else {
        status = check_leaf(t, bytes);
        if (status)
            ls_storage_release(leaf);
    }
    if (!status)
        end_into(t, leaf, out);
    return status;
}
