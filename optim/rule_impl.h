/*
 * rule_impl.h - what an optimizer is: one const table, and what its update gets to see.
 *
 * A rule works element by element on what it is given: the rows of a parameter that this rank
 * owns, in operations whose order does not depend on where an element lies (architecture.md,
 * rule 3).  So every rule shards without knowing it.
 *
 * optim/rules/<name>.c defines ls__optim_<name> for each line of LS_OPTIM_LIST (optimizer.h).
 */
#ifndef LS_OPTIM_RULE_IMPL_H
#define LS_OPTIM_RULE_IMPL_H

#include "optim/optimizer.h"

enum { LS_OPTIM_MOST_STATES = 2 }; /* tensors of state for each parameter */

/* One parameter's update. */
typedef struct {
    const ls_optimizer_opts *opts;
    double                   scale; /* of the gradient */
    double                   decay; /* opts' weight decay, 0 for fewer than two dimensions */
    int64_t                  t;     /* this step's number, from 1 */
    bool                     first; /* no step before it had a gradient of this parameter */
    ls_real                 *p;
    const ls_real           *g;
    ls_real                 *state[LS_OPTIM_MOST_STATES]; /* those that there are */
    int64_t                  n;                           /* elements of each */
} ls_optim_update;

typedef struct {
    const char
        *state[LS_OPTIM_MOST_STATES]; /* names: tensors are called "<name>.<parameter>" */
    int (*states)(const ls_optimizer_opts *opts); /* how many of them; NULL: all */
    void (*step)(const ls_optim_update *u);
    double weight_decay; /* what a config that does not say gets */
    bool   has_momentum; /* opts' momentum has a meaning */
} ls_optim_rule;

#define X(NAME, name) extern const ls_optim_rule ls__optim_##name;
LS_OPTIM_LIST(X)
#undef X

#endif
