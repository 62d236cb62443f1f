/* mlp_spiral.c - a small network learns which arm of a spiral a point lies on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lockstep.h"

enum { N = 300 };

int main(void)
{
    float   xy[2 * N];
    int32_t arm[N], n, right = 0;
    for (int i = 0; i < N; i++) {
        float r = (float)i / N, angle = 9 * r + 3.1416f * (float)(arm[i] = i % 2);
        xy[2 * i] = r * cosf(angle), xy[2 * i + 1] = r * sinf(angle);
    }
    ls_mlp_opts       sizes = {4, (int64_t[]){2, 64, 64, 2}, LS_MLP_RELU};
    ls_optimizer_opts adamw = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    ls_module        *mlp   = ls_mlp_new(&sizes);
    ls_named_tensor  *p     = ls_module_list(mlp, false, &n);
    ls_optimizer     *opt   = ls_optimizer_new(p, n, &adamw);
    ls_tape          *tape  = ls_tape_new();
    ls_tensor        *logits, *loss;
    if (!opt || !tape || ls_compute_start(0) || ls_module_init(mlp, 1337))
        return fprintf(stderr, "mlp_spiral: %s\n", ls_error_message()), 1;
    for (int step = 1; step <= 300; step++) {
        ls_tape_reset(tape);
        ls_optimizer_zero_grad(opt);
        logits = ls_module_call(mlp, tape, ls_tape_input(tape, LS_F32, LS_SHAPE2(N, 2), xy));
        loss   = ls_cross_entropy(tape, logits, ls_tape_input(tape, LS_I32, LS_SHAPE1(N), arm),
                                  LS_IGNORE); /* a sum; the division comes last */
        if (ls_backward(tape, loss))          /* tells of any failure since the reset */
            return fprintf(stderr, "mlp_spiral: %s\n", ls_error_message()), 1;
        ls_optimizer_step(opt, 1.0 / N);
        if (step % 50 == 0)
            printf("step %3d  loss %.4f\n", step, ls_item(loss) / N);
    }
    for (int i = 0; i < N; i++)
        right += (ls_reals(logits)[2 * i + 1] > ls_reals(logits)[2 * i]) == arm[i];
    printf("accuracy %.1f %%\n", 100.0 * right / N);
    ls_tape_free(tape);
    ls_optimizer_free(opt);
    free(p);
    ls_module_free(mlp);
    ls_compute_stop();
}
