/*
 * logits_tool.c - the logits of a checkpoint, for check_hf.py.
 *
 *     logits_tool CHECKPOINT ID...     one sequence; a line a token, its logits as %.9g
 */
#include <stdio.h>
#include <stdlib.h>

#include "autograd/tape.h"
#include "cli/open_checkpoint.h"

static ls_status print_logits(ls_opened_model *m, ls_tensor *logits, ls_tape *tape)
{
    if (!logits)
        return ls_tape_status(tape);
    for (int64_t i = 0; i < ls_tensor_numel(logits); i++)
        printf("%.9g%c", (double)ls_reals(logits)[i], (i + 1) % m->vocab_size ? ' ' : '\n');
    return LS_OK;
}

int main(int argc, char **argv)
{
    ls_opened_model m;
    ls_tape        *tape   = ls_tape_new();
    ls_status       status = argc > 2 && tape ? ls_opened_model_load(argv[1], &m) : LS_EINVAL;

    if (!status) {
        ls_tensor *ids = ls_tape_tensor(tape, LS_I32, LS_SHAPE2(1, argc - 2));
        for (int i = 2; ids && i < argc; i++)
            ls_ints(ids)[i - 2] = (int32_t)strtol(argv[i], NULL, 10);
        ls_tape_set_training(tape, false);
        ls_tape_set_grad(tape, false);
        status = print_logits(&m, ls_module_call(m.model, tape, ids), tape);
    }
    if (status)
        fprintf(stderr, "logits_tool: %s\n", ls_error_message());
    ls_tape_free(tape);
    if (argc > 2)
        ls_opened_model_close(&m);
    return status != LS_OK;
}
