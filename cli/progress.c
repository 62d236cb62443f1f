/*
 * progress.c - the living line and the plain ones.
 */
#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/kernels/gemm.h"

static const double redraw_s = 0.1; /* a person reads no faster */

double ls_now(void)
{
    return 1e-9 * (double)ls_now_ns();
}

double ls_measure_sgemm(int side, int rounds)
{
    size_t       elements = (size_t)side * (size_t)side, bytes = 3 * elements * sizeof(ls_real);
    ls_real     *x    = ls_mem_alloc(bytes, LS_MEM_OTHER);
    double       best = 0;
    ls_gemm_args g    = {.m     = side,
                         .n     = side,
                         .k     = side,
                         .alpha = 1,
                         .a     = x,
                         .lda   = side,
                         .ldb   = side,
                         .ldc   = side};

    if (!x)
        return 0;
    for (size_t i = 0; i < 3 * elements; i++)
        x[i] = (ls_real)0.5;
    g.b = x + elements;
    g.c = x + 2 * elements;
    for (int i = 0; i < rounds; i++) {
        double start = ls_now();
        ls_gemm(&g);
        double rate = 2 * (double)elements * side / (ls_now() - start);
        best        = rate > best ? rate : best;
    }
    ls_mem_free(x, bytes, LS_MEM_OTHER);
    return best;
}

typedef struct {
    char text[32];
} short_text;

/* "1h05m", "3m20s", "42s" */
static const char *print_time(double s, short_text *b)
{
    long long t = s > 0 ? (long long)(s + 0.5) : 0;

    if (t >= 3600)
        snprintf(b->text, sizeof b->text, "%lldh%02lldm", t / 3600, t % 3600 / 60);
    else if (t >= 60)
        snprintf(b->text, sizeof b->text, "%lldm%02llds", t / 60, t % 60);
    else
        snprintf(b->text, sizeof b->text, "%llds", t);
    return b->text;
}

/* "812", "12.3k", "1.4M" */
static const char *print_rate(double x, short_text *b)
{
    if (x >= 1e6)
        snprintf(b->text, sizeof b->text, "%.1fM", x / 1e6);
    else if (x >= 1e4)
        snprintf(b->text, sizeof b->text, "%.1fk", x / 1e3);
    else
        snprintf(b->text, sizeof b->text, "%.0f", x);
    return b->text;
}

static void compose(const ls_progress *p, const ls_metrics_line *l, char *out, size_t bytes)
{
    short_text rate, left, peak = {""};
    double     share = p->peak_flops > 0 && l->step_ms > 0
                           ? 100 * p->step_flops / (l->step_ms * 1e-3) / p->peak_flops
                           : 0;
    int64_t    done  = l->step.step - p->first + 1;
    double     per   = (ls_now() - p->started) / (double)done;

    if (share > 0)
        snprintf(peak.text, sizeof peak.text, ", %.0f %% of sgemm", share);
    snprintf(out, bytes,
             "step %lld/%lld  loss %.4f  lr %.3g  norm %.3g  %s tok/s%s  mem %.0f MB  left %s",
             (long long)l->step.step, (long long)p->last, l->step.loss, l->step.lr,
             l->step.grad_norm, print_rate(l->tokens_per_s, &rate), peak.text,
             (double)l->mem.total_peak / 1e6,
             print_time(per * (double)(p->last - l->step.step), &left));
}

void ls_progress_clear(ls_progress *p)
{
    if (!p->standing)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    p->standing = false;
}

void ls_progress_step(ls_progress *p, const ls_metrics_line *line, bool logged)
{
    char   text[256];
    double now = ls_now();

    if (p->silent || !(logged || p->live))
        return;
    compose(p, line, text, sizeof text);
    if (logged) {
        ls_progress_clear(p);
        ls_log_info(p->log, "%s", text);
    } else if (now - p->drawn >= redraw_s) {
        fprintf(stderr, "\r\033[K\033[?7l%s\033[?7h", text); /* cut at the edge, not wrapped */
        fflush(stderr);
        p->standing = true;
        p->drawn    = now;
    }
}
