/* mlp_spiral.c - a small network learns which arm of a spiral a point lies on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lockstep.h"

enum { N = 300 };

int main(void)
{
    float   xy[2 * N];
    int32_t arm[N], n;
    for (int i = 0; i < N; i++) {
        float r = (float)i / N, angle = 9 * r + 3.1416f * (float)(arm[i] = i % 2);
        xy[2 * i] = r * cosf(angle), xy[2 * i + 1] = r * sinf(angle);
    }
    ls_mlp_opts       sizes  = {4, (int64_t[]){2, 64, 64, 2}, LS_MLP_RELU};
    ls_optimizer_opts adamw  = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    ls_module        *mlp    = ls_mlp_new(&sizes);
    ls_named_tensor  *p      = ls_module_list(mlp, false, &n);
    ls_optimizer     *opt    = ls_optimizer_new(p, n, &adamw);
    ls_tape          *tape   = ls_tape_new();
    ls_status         status = opt && tape ? ls_compute_start(0) : LS_ENOMEM;
    if (!status)
        status = ls_module_init(mlp, 1337); /* the seed */
    for (int step = 1; step <= 300 && !status; step++) {
        ls_tape_reset(tape);
        ls_optimizer_zero_grad(opt);
        ls_tensor *x      = ls_tape_input(tape, LS_F32, LS_SHAPE2(N, 2), xy);
        ls_tensor *y      = ls_tape_input(tape, LS_I32, LS_SHAPE1(N), arm);
        ls_tensor *logits = ls_module_call(mlp, tape, x);
        ls_tensor *loss = ls_cross_entropy(tape, logits, y, LS_IGNORE); /* summed over points */
        status          = ls_backward(tape, loss); /* reports what failed above, too */
        if (status)
            break;
        ls_optimizer_step(opt, 1.0 / N);
        int right = 0;
        for (int i = 0; i < N; i++)
            right += (ls_reals(logits)[2 * i + 1] > ls_reals(logits)[2 * i]) == arm[i];
        if (step % 50 == 0)
            printf("step %3d  loss %.4f  accuracy %.1f %%\n", step, ls_item(loss) / N,
                   100.0 * right / N);
    }
    if (status)
        fprintf(stderr, "mlp_spiral: %s\n", ls_error_message());
    ls_compute_stop();
    ls_tape_free(tape);
    ls_optimizer_free(opt);
    free(p);
    ls_module_free(mlp);
    return status;
}
