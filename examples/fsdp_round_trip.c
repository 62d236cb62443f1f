/*
 * fsdp_round_trip.c - what sharding does to parameters: cut, gathered, equal to the last bit.
 *
 *     fsdp_round_trip [--world-size N] [--backend shm|tcp|threads] [--out FILE]
 *
 * N ranks (2) hold a small MLP whose sizes no N divides well.  Each parameter makes two round
 * trips and must come back with its bits:
 *
 *     flat   flattened, padded to a multiple of N, sliced; gathered, unpadded: as FSDP1 cuts,
 *            whose slices end in the middle of rows
 *     rows   cut by rows, ceil(rows / N) each; gathered by segments: as FSDP2 cuts and Lockstep
 *
 * Then ls_fsdp shards the MLP, a unit a layer, and takes a step.  While a layer runs it must
 * see the parameters of the MLP that was never sharded, and the loss must have the bits of the
 * one alone.  A table says how many bytes of parameters a rank has meanwhile: with units that
 * are dropped after forward (ZeRO-3), and with units that stay until backward.  Nothing is
 * gathered ahead here, so that the table shows one unit at a time, and whole forms are copies,
 * as between hosts; ranks of one host would read each other's rows in place.
 *
 * The result becomes the member fsdp_round_trip of outputs/ddp-demo.json, beside what
 * ddp_demo wrote there; the exit status is 1 where a promise did not hold.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/atomic_file.h"
#include "core/json.h"
#include "demo_main.h"
#include "lockstep.h"

enum { LAYERS = 4, ROWS = 64, MOMENTS = 2 * LAYERS + 3, PLACES = 64 };

static const int64_t widths[LAYERS + 1] = {32, 33, 35, 31, 3};

/* ---- an MLP that can be watched ---- */

/* Bytes of parameters on this rank, moment by moment of a step. */
typedef struct {
    const ls_named_tensor *p, *twin; /* [n]; the same MLP, never sharded */
    int                    n, moments;
    int64_t                bytes[MOMENTS];
    char                   name[MOMENTS][24];
    bool                   equal; /* whole forms that were seen had the twin's bits */
} watch;

static bool is_inside(const void *x, const ls_storage *s)
{
    return (uintptr_t)x - (uintptr_t)s->data < s->bytes;
}

/* Own rows, and the whole form where it is there; rows that lie in it count once. */
static int64_t bytes_here(ls_tensor *t)
{
    const ls_tensor *own   = ls_tensor_owned(t);
    int64_t          bytes = (int64_t)ls_tensor_bytes(own);

    if (own == t || !t->storage->data)
        return bytes;
    return (int64_t)ls_tensor_bytes(t) + (is_inside(ls_reals(own), t->storage) ? 0 : bytes);
}

static void look(watch *w, const char *what, int layer)
{
    int k = w->moments++;

    snprintf(w->name[k], sizeof w->name[k], layer < 0 ? "%s" : "%s %d", what, layer);
    for (int i = 0; i < w->n; i++) {
        ls_tensor *t = w->p[i].tensor;
        w->bytes[k] += bytes_here(t);
        if (t->storage->data)
            w->equal = w->equal &&
                       !memcmp(ls_reals(t), ls_reals(w->twin[i].tensor), ls_tensor_bytes(t));
    }
}

typedef struct {
    ls_module        base;
    watch           *watch; /* NULL: nobody looks */
    int              index;
    ls_boundary_hook hook;
} layer;

static ls_status in_backward(void *context)
{
    const layer *l = context;

    look(l->watch, "backward", l->index);
    return LS_OK;
}

static ls_tensor *layer_forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    layer *l = (layer *)self;

    (void)y;
    x = ls_module_call(self->children, tape, x);
    if (l->watch) {
        look(l->watch, "forward", l->index);
        x = ls_boundary(tape, x, &l->hook);
    }
    return self->next ? ls_tanh(tape, x) : x;
}

static ls_tensor *net_forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *targets)
{
    for (ls_module *l = self->children; l; l = l->next)
        x = ls_module_call(l, tape, x);
    return ls_cross_entropy(tape, x, targets, LS_IGNORE);
}

static const ls_module_class layer_class = {"layer", layer_forward};
static const ls_module_class net_class   = {"net", net_forward};

static ls_module *new_layer(ls_module *root, int i)
{
    char           name[8];
    ls_linear_opts sizes = {
        .in          = widths[i],
        .out         = widths[i + 1],
        .bias        = true,
        .weight_init = {.kind = LS_INIT_UNIFORM, .value = 1 / sqrt((double)widths[i])},
        .bias_init   = {.kind = LS_INIT_UNIFORM, .value = 0.1}};

    snprintf(name, sizeof name, "%d", i);
    layer *l = ls_module_new(&layer_class, sizeof *l, root, name);
    if (!l || !ls_linear_new(&l->base, "linear", &sizes))
        return NULL;
    l->index = i;
    l->hook  = (ls_boundary_hook){in_backward, l};
    return &l->base;
}

typedef struct {
    ls_module       *root, *layer[LAYERS];
    ls_named_tensor *p;
    int              n;
    ls_tape         *tape;
    ls_fsdp         *fsdp;
} net;

static ls_status open_net(net *w)
{
    *w      = (net){.root = ls_module_new(&net_class, sizeof(ls_module), NULL, ""),
                    .tape = ls_tape_new()};
    bool ok = w->root && w->tape;

    for (int i = 0; i < LAYERS && ok; i++)
        ok = (w->layer[i] = new_layer(w->root, i)) != NULL;
    w->p = ok ? ls_module_list(w->root, false, &w->n) : NULL;
    return w->p ? LS_OK : LS_ENOMEM;
}

static void close_net(net *w)
{
    ls_tape_free(w->tape);
    ls_fsdp_free(w->fsdp);
    free(w->p);
    ls_module_free(w->root);
}

/* The sum of the losses of this rank's points; NULL: the tape has failed. */
static ls_tensor *loss_of(net *w, int rank)
{
    ls_tensor *x   = ls_tape_tensor(w->tape, LS_F32, LS_SHAPE2(ROWS, widths[0]));
    ls_tensor *arm = ls_tape_tensor(w->tape, LS_I32, LS_SHAPE1(ROWS));

    for (int64_t i = 0; i < ROWS && x && arm; i++) {
        ls_ints(arm)[i] = (int32_t)((i + rank) % widths[LAYERS]);
        for (int64_t k = 0; k < widths[0]; k++)
            ls_reals(x)[i * widths[0] + k] = sinf((float)((i + rank) * (k + 1)));
    }
    return ls_module_call_with(w->root, w->tape, x, arm);
}

/* ---- round trips ---- */

/* What became of a parameter, on all ranks. */
typedef struct {
    int64_t padded, slice, rows; /* flat: elements; rows: of the first rank */
    int64_t flat_equal, rows_equal;
} trip;

static ls_status flat_trip(ls_comm *world, const ls_tensor *t, trip *r)
{
    int64_t   n = ls_tensor_numel(t), size = ls_comm_size(world);
    int64_t   each = (n + size - 1) / size, rank = ls_comm_rank(world);
    float    *padded   = ls_calloc((size_t)(3 * each * size), sizeof *padded);
    float    *slice    = padded ? padded + each * size : NULL;
    float    *gathered = padded ? slice + each : NULL;
    ls_status status   = padded ? LS_OK : LS_ENOMEM;

    if (!status) {
        memcpy(padded, ls_reals(t), ls_tensor_bytes(t));
        memcpy(slice, padded + rank * each, (size_t)each * sizeof *slice);
        status = ls_comm_all_gather(world, gathered, slice, each, LS_F32);
    }
    if (!status)
        r->flat_equal = !memcmp(gathered, ls_reals(t), ls_tensor_bytes(t));
    r->padded = each * size;
    r->slice  = each;
    free(padded);
    return status;
}

static ls_status rows_trip(ls_comm *world, const ls_named_tensor *p, trip *r)
{
    int              rank = ls_comm_rank(world), size = ls_comm_size(world);
    const ls_tensor *t     = p->tensor;
    int64_t          row   = ls_tensor_row_elements(t);
    ls_rows          own   = ls_shard_rows(ls_tensor_rows(t), rank, size);
    float           *whole = ls_calloc((size_t)ls_tensor_numel(t), sizeof *whole);
    ls_shard_layout  layout;
    ls_status        status = ls_shard_layout_init(&layout, p, 1, rank, size);

    if (!status && !whole)
        status = LS_ENOMEM;
    if (!status) /* own.count * row elements: nothing where rows are fewer than ranks */
        status = ls_comm_run(world, &(ls_call){.kind   = LS_ALL_GATHER,
                                               .in     = ls_reals(t) + own.first * row,
                                               .out    = whole,
                                               .count  = layout.count,
                                               .dtype  = LS_F32,
                                               .slices = layout.slices});
    if (!status)
        r->rows_equal = !memcmp(whole, ls_reals(t), ls_tensor_bytes(t));
    r->rows = ls_shard_rows(ls_tensor_rows(t), 0, size).count;
    ls_shard_layout_close(&layout);
    free(whole);
    return status;
}

/* ---- one step under ls_fsdp ---- */

typedef struct {
    int      world, n;
    net      twin;
    trip     trips[PLACES];
    int64_t *own; /* [world] bytes of its rows */
    watch    dropped, kept;
    int64_t  whole, loss_equal, seen_equal;
} report;

static ls_status shard(net *w, ls_comm *world, bool reshard)
{
    ls_fsdp_opts opts   = {.reshard_after_forward = reshard, .no_share = true};
    ls_status    status = open_net(w);

    for (int i = 0; i < LAYERS && !status; i++)
        status = ls_fsdp_shard(w->layer[i], world, &opts);
    if (!status)
        status = ls_fsdp_new(w->root, world, &opts, &w->fsdp);
    if (status && w->root)
        ls_fsdp_forget(w->root);
    return status ? status : ls_module_init(w->root, 1337); /* its own rows alone */
}

static ls_status step(net *w, watch *seen, int rank, float *loss)
{
    ls_status status = ls_fsdp_begin(w->fsdp, w->tape);

    if (!status) {
        ls_tape_reset(w->tape);
        look(seen, "before", -1);
        ls_tensor *l = loss_of(w, rank);
        look(seen, "after forward", -1);
        if (l)
            *loss = (float)ls_item(l);
        status = ls_backward(w->tape, l);
    }
    if (!status)
        status = ls_fsdp_end_micro(w->fsdp);
    status = ls_fsdp_finish(w->fsdp, w->tape, status);
    look(seen, "after backward", -1);
    return status;
}

static ls_status take_step(ls_comm *world, report *r, bool reshard, watch *seen)
{
    net       w;
    float     loss   = NAN;
    ls_status status = shard(&w, world, reshard);

    if (!status) {
        *seen = (watch){.p = w.p, .twin = r->twin.p, .n = w.n, .equal = true};
        for (int i = 0; i < LAYERS; i++)
            ((layer *)w.layer[i])->watch = seen;
        status = step(&w, seen, ls_comm_rank(world), &loss);
    }
    if (!status) {
        ls_tensor *alone =
            (ls_tape_reset(r->twin.tape), loss_of(&r->twin, ls_comm_rank(world)));
        r->loss_equal = r->loss_equal && alone && loss == (float)ls_item(alone);
        r->seen_equal = r->seen_equal && seen->equal;
    }
    close_net(&w);
    return status;
}

static int64_t own_bytes(const net *w, int rank, int size)
{
    int64_t bytes = 0;

    for (int i = 0; i < w->n; i++) {
        const ls_tensor *t = w->p[i].tensor;
        bytes += ls_shard_rows(ls_tensor_rows(t), rank, size).count *
                 ls_tensor_row_elements(t) * (int64_t)sizeof(ls_real);
    }
    return bytes;
}

/* What held on one rank only did not hold. */
static ls_status agree(ls_comm *world, report *r)
{
    int64_t  *all = ls_calloc((size_t)(2 * r->n + 2), sizeof *all), k = 0;
    ls_status status = all ? LS_OK : LS_ENOMEM;

    for (int i = 0; i < r->n && all; i++) {
        all[k++] = r->trips[i].flat_equal;
        all[k++] = r->trips[i].rows_equal;
    }
    if (all) {
        all[k++] = r->loss_equal;
        all[k++] = r->seen_equal;
        status   = ls_comm_all_reduce(world, all, all, k, LS_I64, LS_MIN);
    }
    for (int i = 0; i < r->n && !status; i++) {
        r->trips[i].flat_equal = all[2 * (int64_t)i];
        r->trips[i].rows_equal = all[2 * (int64_t)i + 1];
    }
    if (!status) {
        r->loss_equal = all[k - 2];
        r->seen_equal = all[k - 1];
    }
    free(all);
    return status;
}

static ls_status travel(ls_comm *world, report *r)
{
    ls_status status = ls_module_init(r->twin.root, 1337);

    r->n = r->twin.n;
    for (int i = 0; i < r->n && !status; i++) {
        status = flat_trip(world, r->twin.p[i].tensor, &r->trips[i]);
        if (!status)
            status = rows_trip(world, &r->twin.p[i], &r->trips[i]);
    }
    if (!status)
        status = take_step(world, r, true, &r->dropped);
    if (!status)
        status = take_step(world, r, false, &r->kept);
    for (int k = 0; k < r->world; k++)
        r->own[k] = own_bytes(&r->twin, k, r->world);
    r->whole = own_bytes(&r->twin, 0, 1);
    return status ? status : agree(world, r);
}

/* ---- what is left of it ---- */

static bool all_equal(const report *r)
{
    bool equal = r->loss_equal && r->seen_equal;

    for (int i = 0; i < r->n; i++)
        equal = equal && r->trips[i].flat_equal && r->trips[i].rows_equal;
    return equal;
}

static const char *truth(bool b)
{
    return b ? "true" : "false";
}

static void write_parameters(FILE *f, const report *r)
{
    for (int i = 0; i < r->n; i++) {
        const trip *t = &r->trips[i];
        fprintf(f, "%s\n   {\"name\": ", i ? "," : "");
        ls_json_print_string(f, r->twin.p[i].name);
        fprintf(f,
                ", \"elements\": %lld, \"padded\": %lld, \"slice\": %lld, \"rows\": %lld, "
                "\"rows_each\": %lld, \"flat_equal\": %s, \"rows_equal\": %s}",
                (long long)ls_tensor_numel(r->twin.p[i].tensor), (long long)t->padded,
                (long long)t->slice, (long long)ls_tensor_rows(r->twin.p[i].tensor),
                (long long)t->rows, truth(t->flat_equal), truth(t->rows_equal));
    }
}

static void write_moments(FILE *f, const report *r)
{
    for (int k = 0; k < r->dropped.moments; k++)
        fprintf(f, "%s\n   {\"when\": \"%s\", \"resharded\": %lld, \"kept\": %lld}",
                k ? "," : "", r->dropped.name[k], (long long)r->dropped.bytes[k],
                (long long)r->kept.bytes[k]);
}

static void write_member(FILE *f, const report *r)
{
    fprintf(f, " \"fsdp_round_trip\": {\"world_size\": %d, \"bit_equal\": %s,\n", r->world,
            truth(all_equal(r)));
    fprintf(f, "  \"loss_equal\": %s, \"whole_forms_equal\": %s,\n  \"parameters\": [",
            truth(r->loss_equal), truth(r->seen_equal));
    write_parameters(f, r);
    fprintf(f, "],\n  \"bytes\": {\"whole\": %lld, \"own_rows\": [", (long long)r->whole);
    for (int k = 0; k < r->world; k++)
        fprintf(f, "%s%lld", k ? ", " : "", (long long)r->own[k]);
    fprintf(f, "], \"moments\": [");
    write_moments(f, r);
    fprintf(f, "]}}}\n");
}

/* The members of an object, as they were written, but for ours. */
static ls_status copy_members(FILE *f, const char *text, size_t bytes, const char *path)
{
    ls_json_doc *doc;
    ls_status    status = ls_json_parse(text, bytes, path, &doc);

    if (!status && ls_json_root(doc)->kind != LS_JSON_OBJECT)
        status = ls_fail(LS_EFORMAT, "%s: %s, want an object", path,
                         ls_json_kind_name(ls_json_root(doc)));
    for (const ls_json *m = status ? NULL : ls_json_root(doc)->child; m; m = m->next) {
        if (!strcmp(m->key, "fsdp_round_trip"))
            continue;
        fputc(' ', f);
        ls_json_print_string(f, m->key);
        fprintf(f, ": %.*s,\n", (int)m->source_bytes, m->source);
    }
    if (!status)
        ls_json_free(doc);
    return status;
}

/* What the file has; nothing where there is none. */
static ls_status copy_old(FILE *f, const char *path)
{
    FILE     *old   = fopen(path, "r");
    char     *text  = NULL;
    size_t    bytes = 0, room = 1 << 20;
    ls_status status = LS_OK;

    if (!old)
        return LS_OK;
    text = ls_calloc(room, 1);
    if (!text)
        status = LS_ENOMEM;
    else if ((bytes = fread(text, 1, room, old)) == room || ferror(old))
        status =
            ls_fail(LS_EIO, "%s: cannot read it, or it is larger than %zu bytes", path, room);
    else
        status = copy_members(f, text, bytes, path);
    fclose(old);
    free(text);
    return status;
}

static ls_status replace(const char *path, const char *text, size_t bytes)
{
    ls_atomic_file file;
    ls_status      status = ls_atomic_begin(&file, path);

    if (!status)
        status = ls_atomic_write(&file, text, bytes);
    if (!status)
        status = ls_atomic_commit(&file);
    ls_atomic_abandon(&file);
    return status;
}

static ls_status write_report(const report *r, const char *path)
{
    char     *text = NULL;
    size_t    bytes;
    FILE     *f      = open_memstream(&text, &bytes);
    ls_status status = f ? LS_OK : LS_ENOMEM;

    if (!f)
        return status;
    fputs("{", f);
    status = copy_old(f, path);
    write_member(f, r);
    if (fclose(f) && !status)
        status = LS_ENOMEM;
    if (!status)
        status = replace(path, text, bytes);
    free(text);
    return status;
}

static void print_report(const report *r, const char *path)
{
    int64_t flat = 0, rows = 0;

    printf("%d ranks, %lld bytes of parameters\n\n", r->world, (long long)r->whole);
    printf("%-16s %9s %7s %6s %6s %10s  %s\n", "parameter", "elements", "padded", "slice",
           "rows", "rows each", "flat, by rows");
    for (int i = 0; i < r->n; i++) {
        const trip *t = &r->trips[i];
        printf("%-16s %9lld %7lld %6lld %6lld %10lld  %s, %s\n", r->twin.p[i].name,
               (long long)ls_tensor_numel(r->twin.p[i].tensor), (long long)t->padded,
               (long long)t->slice, (long long)ls_tensor_rows(r->twin.p[i].tensor),
               (long long)t->rows, t->flat_equal ? "equal" : "DIFFERS",
               t->rows_equal ? "equal" : "DIFFERS");
        flat += t->flat_equal;
        rows += t->rows_equal;
    }
    printf("\nbytes of parameters on rank 0 (its rows: %lld)\n%-16s %10s %10s\n",
           (long long)r->own[0], "", "resharded", "kept");
    for (int k = 0; k < r->dropped.moments; k++)
        printf("%-16s %10lld %10lld\n", r->dropped.name[k], (long long)r->dropped.bytes[k],
               (long long)r->kept.bytes[k]);
    printf("\n%lld of %d came back flat, %lld by rows; loss %s\n%s\n", (long long)flat, r->n,
           (long long)rows, r->loss_equal ? "equal" : "DIFFERS", path);
}

static ls_status finish(const report *r, const char *path)
{
    ls_status status = write_report(r, path);

    if (status)
        return status;
    print_report(r, path);
    return all_equal(r) ? LS_OK : ls_fail(LS_EMISMATCH, "bits were lost on the way");
}

static ls_status rank(ls_comm *world, void *context)
{
    report    r      = {.world = ls_comm_size(world), .loss_equal = 1, .seen_equal = 1};
    ls_status status = ls_compute_start(1);

    if (status)
        return status;
    r.own  = ls_calloc((size_t)r.world, sizeof *r.own);
    status = r.own ? open_net(&r.twin) : LS_ENOMEM;
    if (!status)
        status = travel(world, &r);
    if (!status && ls_comm_rank(world) == 0)
        status = finish(&r, context);
    if (r.own)
        close_net(&r.twin);
    free(r.own);
    ls_compute_stop();
    return status;
}

int main(int argc, char **argv)
{
    return demo_main(argc, argv, "fsdp_round_trip", rank);
}
