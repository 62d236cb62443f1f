/*
 * dry_run.c - what a run would be, without training: its config, size and memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/model.h"
#include "cli/plan.h"
#include "cli/train.h"

ls_status ls_train_dry_run(const ls_config *cfg)
{
    ls_dataset_opts opts = ls_dataset_opts_of(cfg);
    ls_dataset      data;
    ls_status       status = ls_dataset_load(&opts, &data);

    if (status)
        return ls_blame_config(status);
    int64_t    vocab = data.vocab_size;
    ls_module *model = ls_model_new(cfg, vocab);
    char      *json  = ls_config_json(cfg);
    ls_dataset_close(&data);
    if (model && json) {
        ls_plan_world  one = {.size = 1, .shares = true};
        ls_plan_model  m   = ls_plan_model_of(cfg, vocab, model);
        ls_memory_plan p   = ls_memory_plan_of(cfg, vocab, &m, LS_PLAN_SINGLE, &one);
        printf(
            "{\"config\":%s,\n\"vocab_size\":%lld,\"parameters\":%lld,\n\"memory_bytes\":{"
            "\"params\":%lld,\"grads\":%lld,\"optim\":%lld,\"activations\":%lld,\"comm\":%lld,"
            "\"total\":%lld}}\n",
            json, (long long)vocab, (long long)m.parameters, (long long)p.params,
            (long long)p.grads, (long long)p.optim, (long long)p.activations, (long long)p.comm,
            (long long)p.total);
    } else {
        status = LS_ENOMEM;
    }
    free(json);
    ls_module_free(model);
    return status;
}
