/*
 * module.h - a tree of modules with named parameters and buffers.
 *
 * A module is a struct that starts with ls_module and belongs to a class: a const table with
 * its forward.  Children and parameters are registered when the module is made and keep that
 * order.  A parameter's full name is the path to it, as in "h.0.attn.qkv.weight".
 *
 * Construction makes headers only; ls_module_init() gives them memory and values.  So a model
 * can be counted, planned or sharded without existing.
 *
 * The tree owns its modules and parameters; ls_module_free() of the root frees all.
 */
#ifndef LS_NN_MODULE_H
#define LS_NN_MODULE_H

#include "autograd/tape.h"
#include "nn/init.h"

typedef struct ls_module ls_module;

typedef struct {
    const char *type;
    /* y is a second input where the class takes one (targets), else NULL. */
    ls_tensor *(*forward)(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y);
} ls_module_class;

/* A named tensor of a module.  requires_grad of the tensor says whether it is trained. */
typedef struct ls_parameter {
    const char          *name; /* inside its module, a literal */
    char                *path; /* from the root */
    ls_tensor            tensor;
    ls_init              init;
    bool                 is_buffer; /* part of the state, never trained */
    struct ls_parameter *next;
} ls_parameter;

/* Called around a module's forward; each returns what goes on in place of what it got. */
typedef struct {
    ls_tensor *(*before)(void *context, ls_module *m, ls_tape *tape, ls_tensor *x);
    ls_tensor *(*after)(void *context, ls_module *m, ls_tape *tape, ls_tensor *out);
    void *context;
} ls_module_hook;

struct ls_module {
    const ls_module_class *kind;
    char                  *path; /* from the root, "" for the root itself */
    ls_module             *parent, *children, *last_child, *next;
    ls_parameter          *parameters;
    ls_module_hook         hook;
};

/*
 * A zeroed module of `size` bytes, the last child of parent (NULL: a root) under a name; NULL:
 * out of memory.  A parent of NULL with a name other than "" is fine.
 */
void *ls_module_new(const ls_module_class *kind, size_t size, ls_module *parent,
                    const char *name);
void  ls_module_free(ls_module *root); /* NULL is allowed */

/*
 * A header without memory, registered as the module's last and owned by it; NULL: out of
 * memory, or a shape that ls_shape_check() refuses.  name is a literal.  A buffer is state that
 * is never trained.
 */
ls_parameter *ls_module_add_parameter(ls_module *m, const char *name, ls_shape shape,
                                      ls_init init);
ls_parameter *ls_module_add_buffer(ls_module *m, const char *name, ls_shape shape,
                                   ls_init init);

/*
 * Runs a module: its hooks, its forward, and a scope that ends with it.  The result is the
 * tape's; NULL: the tape has failed, as it does for a module that is NULL.  y is for classes
 * with a second input.
 */
ls_tensor *ls_module_call(ls_module *m, ls_tape *tape, ls_tensor *x);
ls_tensor *ls_module_call_with(ls_module *m, ls_tape *tape, ls_tensor *x, ls_tensor *y);
void       ls_module_set_hook(ls_module *m, ls_module_hook hook);

/*
 * All parameters below root in registration order, paths as names; buffers where asked for; *n
 * of them.  The list is the caller's, freed with free() before or after the modules that it
 * points into.  NULL, with *n 0: out of memory, or a root that is NULL, so that a failed
 * constructor may be handed on.
 */
ls_named_tensor *ls_module_list(ls_module *root, bool with_buffers, int *n);

/* Elements of all parameters. */
int64_t ls_module_parameter_count(const ls_module *root);

/*
 * Gives every parameter and buffer memory and its initial values, which are a function of
 * (seed, path, element) alone; a second call gives them again.  Of a sharded parameter
 * (tensor.h) the rank's own rows get theirs.  On failure what was given is
 * taken back.  EINVAL for a NULL; ENOMEM.
 */
LS_MUST_CHECK ls_status ls_module_init(ls_module *root, uint64_t seed);

#endif
