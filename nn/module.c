/*
 * module.c - the tree.
 */
#include "nn/module.h"

#include <stdlib.h>

/* "parent.name", or "name" below a root without one. */
static char *join_path(const ls_module *parent, const char *name)
{
    if (parent && parent->path[0])
        return ls_sprintf("%s.%s", parent->path, name);
    return ls_strdup(name);
}

static void append_child(ls_module *parent, ls_module *child)
{
    *(parent->last_child ? &parent->last_child->next : &parent->children) = child;

    parent->last_child = child;
    child->parent      = parent;
}

void *ls_module_new(const ls_module_class *kind, size_t size, ls_module *parent,
                    const char *name)
{
    ls_module *m = ls_calloc(1, size);
    if (!m)
        return NULL;
    m->kind = kind;
    m->path = join_path(parent, name);
    if (!m->path) {
        free(m);
        return NULL;
    }
    if (parent)
        append_child(parent, m);
    return m;
}

static void free_parameters(ls_parameter *p)
{
    for (ls_parameter *next; p; p = next) {
        next = p->next;
        ls_tensor_drop(&p->tensor);
        free(p->path);
        free(p);
    }
}

void ls_module_free(ls_module *root)
{
    if (!root)
        return;
    for (ls_module *c = root->children, *next; c; c = next) {
        next = c->next;
        ls_module_free(c);
    }
    free_parameters(root->parameters);
    free(root->path);
    free(root);
}

static ls_parameter *add(ls_module *m, const char *name, ls_shape shape, ls_init init)
{
    ls_parameter **at = &m->parameters;
    if (ls_shape_check(&shape, LS_REAL))
        return NULL;
    ls_parameter *p = ls_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->name   = name;
    p->path   = join_path(m, name);
    p->tensor = ls_tensor_header(LS_REAL, shape);
    p->init   = init;
    if (!p->path) {
        free(p);
        return NULL;
    }
    while (*at)
        at = &(*at)->next;
    *at = p;
    return p;
}

ls_parameter *ls_module_add_parameter(ls_module *m, const char *name, ls_shape shape,
                                      ls_init init)
{
    ls_parameter *p = add(m, name, shape, init);
    if (p)
        p->tensor.requires_grad = true;
    return p;
}

ls_parameter *ls_module_add_buffer(ls_module *m, const char *name, ls_shape shape, ls_init init)
{
    ls_parameter *p = add(m, name, shape, init);
    if (p)
        p->is_buffer = true;
    return p;
}

ls_tensor *ls_module_call_with(ls_module *m, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    if (!m)
        return ls_tape_status(tape)
                   ? NULL
                   : ls_tape_fail(tape, ls_fail(LS_EINVAL, "module_call: the module is NULL"));
    ls_scope scope = ls_tape_scope_begin(tape);
    if (m->hook.before)
        x = m->hook.before(m->hook.context, m, tape, x);
    ls_tensor *out = m->kind->forward(m, tape, x, y);
    if (out && m->hook.after)
        out = m->hook.after(m->hook.context, m, tape, out);
    ls_tape_scope_end(tape, scope, out);
    return out;
}

ls_tensor *ls_module_call(ls_module *m, ls_tape *tape, ls_tensor *x)
{
    return ls_module_call_with(m, tape, x, NULL);
}

void ls_module_set_hook(ls_module *m, ls_module_hook hook)
{
    m->hook = hook;
}

typedef ls_status (*visitor)(void *context, ls_parameter *p);

static ls_status visit(ls_module *m, visitor fn, void *context)
{
    ls_status status = LS_OK;

    for (ls_parameter *p = m->parameters; p && !status; p = p->next)
        status = fn(context, p);
    for (ls_module *c = m->children; c && !status; c = c->next)
        status = visit(c, fn, context);
    return status;
}

typedef struct {
    ls_named_tensor *list; /* NULL while counting */
    bool             with_buffers;
    int              n;
} collection;

static ls_status collect(void *context, ls_parameter *p)
{
    collection *c = context;

    if (p->is_buffer && !c->with_buffers)
        return LS_OK;
    if (c->list)
        c->list[c->n] = (ls_named_tensor){p->path, &p->tensor};
    c->n++;
    return LS_OK;
}

ls_named_tensor *ls_module_list(ls_module *root, bool with_buffers, int *n)
{
    collection c = {.with_buffers = with_buffers};

    *n = 0;
    if (!root || visit(root, collect, &c))
        return NULL;
    c.list = ls_calloc((size_t)c.n, sizeof *c.list);
    c.n    = 0;
    if (!c.list || visit(root, collect, &c))
        return NULL;
    *n = c.n;
    return c.list;
}

static void count_elements(const ls_module *m, int64_t *elements)
{
    for (const ls_parameter *p = m->parameters; p; p = p->next)
        *elements += p->is_buffer ? 0 : ls_tensor_numel(&p->tensor);
    for (const ls_module *c = m->children; c; c = c->next)
        count_elements(c, elements);
}

int64_t ls_module_parameter_count(const ls_module *root)
{
    int64_t elements = 0;

    count_elements(root, &elements);
    return elements;
}

static ls_status give_values(void *context, ls_parameter *p)
{
    const uint64_t *seed   = context;
    ls_tensor      *t      = ls_tensor_owned(&p->tensor);
    ls_status       status = LS_OK;

    if (!t->storage)
        status = ls_tensor_materialize(t, LS_MEM_PARAMS);
    if (status)
        return ls_fail_in(status, "parameter %s", p->path);
    ls_init_fill(&p->init, *seed, p->path, ls_tensor_owned_first(&p->tensor),
                 ls_tensor_numel(t), ls_reals(t));
    return LS_OK;
}

static ls_status take_back(void *context, ls_parameter *p)
{
    (void)context;
    if (!p->tensor.shard)
        ls_tensor_drop(&p->tensor);
    return LS_OK;
}

ls_status ls_module_init(ls_module *root, uint64_t seed)
{
    if (!root)
        return ls_fail(LS_EINVAL, "module_init: the module is NULL");
    ls_status status = visit(root, give_values, &seed);

    if (status && visit(root, take_back, NULL))
        return status;
    return status;
}
