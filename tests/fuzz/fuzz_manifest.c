/*
 * fuzz_manifest.c - manifests that nobody vouches for.
 *
 * An input is a manifest's text without its own CRC-32, which is put behind it here: a mutation
 * would hardly ever get it right.  Whatever is accepted must be what manifest.h promises, and
 * print to a text that is read back as the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"
#include "core/alloc.h"
#include "core/gz.h"
#include "fuzz/fuzz.h"

/* Tensors are unique and sorted, their chunks tile them and name files that are there. */
static void check(const ls_manifest *m)
{
    uint64_t stored = 0, held = 0;

    for (size_t i = 0; i < m->n_tensors; i++) {
        const ls_manifest_tensor *t    = &m->tensor[i];
        uint64_t                  rows = 0;
        fuzz_expect(*t->name && (!i || strcmp(t[-1].name, t->name) < 0));
        for (size_t k = t->first_chunk; k < t->first_chunk + t->n_chunks; k++) {
            const ls_manifest_chunk *c = &m->chunk[k];
            fuzz_expect(c->tensor == i && c->file < m->n_files && c->first == rows && c->rows);
            fuzz_expect(c->bytes == c->rows * t->row_bytes);
            fuzz_expect(c->offset >= m->file[c->file].header_bytes);
            fuzz_expect(c->offset + c->stored <= m->file[c->file].bytes);
            rows += c->rows;
            stored += c->stored;
        }
        fuzz_expect(rows == (t->row_bytes ? t->rows : 0));
        fuzz_expect(ls_manifest_find(m, t->name) == t);
    }
    for (size_t i = 0; i < m->n_files; i++) {
        fuzz_expect(!strchr(m->file[i].name, '/') && m->file[i].name[0] != '.');
        held += m->file[i].bytes - m->file[i].header_bytes;
    }
    fuzz_expect(stored == held);
}

static void check_print(ls_manifest *m)
{
    ls_manifest again;
    char       *text = ls_manifest_print(m);

    fuzz_expect(text && ls_manifest_parse(text, strlen(text), "again", &again) == LS_OK);
    fuzz_expect(again.crc == m->crc && again.n_chunks == m->n_chunks && again.step == m->step);
    ls_manifest_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_manifest m;
    char       *text = ls_calloc(size + 32, 1), *own;

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    size_t n =
        size + (size_t)sprintf(text + size, ",\"crc32\":\"%08x\"}\n", ls_crc32(0, data, size));
    own = ls_calloc(n, 1); /* of its own size, so that a read beyond it shows */
    if (own) {
        memcpy(own, text, n);
        ls_status status = ls_manifest_parse(own, n, "f", &m);
        fuzz_expect(status == LS_OK || status == LS_EFORMAT);
        if (!status) {
            check(&m);
            check_print(&m);
            ls_manifest_free(&m);
        }
    }
    free(own);
    free(text);
    return 0;
}
