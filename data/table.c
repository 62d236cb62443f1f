/*
 * table.c - rows in memory.
 */
#include "data/table_impl.h"

#include <string.h>

#include "core/alloc.h"

ls_status ls_table_load(ls_data_format format, ls_paths paths, ls_table_shape shape,
                        ls_table *table)
{
    *table           = (ls_table){0};
    ls_status status = format == LS_FORMAT_CSV ? ls__csv_load(paths, shape, table)
                                               : ls__idx_load(paths, shape, table);
    if (status)
        ls_table_close(table);
    return status;
}

void ls_table_close(ls_table *table)
{
    for (int i = 0; i < 2; i++)
        ls_mem_free(table->memory[i], table->owned[i], LS_MEM_OTHER);
    *table = (ls_table){0};
}

ls_table ls_table_slice(const ls_table *table, int64_t first, int64_t count)
{
    return (ls_table){.rows     = count,
                      .features = table->features,
                      .value    = table->value ? table->value + first * table->features : NULL,
                      .byte     = table->byte ? table->byte + first * table->features : NULL,
                      .label    = table->label + first};
}

int32_t ls_table_read(const ls_table *table, int64_t row, float *out)
{
    int64_t n = table->features, first = row * n;

    if (table->value)
        memcpy(out, table->value + first, (size_t)n * sizeof *out);
    for (int64_t i = 0; i < n && table->byte; i++)
        out[i] = (float)table->byte[first + i] / 255;
    return table->label[row];
}

ls_status ls_table_sha256(const ls_table *t, char hex[LS_SHA256_HEX])
{
    size_t    n = (size_t)t->rows, values = n * (size_t)t->features;
    ls_sha256 sha;
    ls_status status = ls_sha256_init(&sha);

    if (status)
        return status;
    status = t->byte ? ls_sha256_update(&sha, t->byte, values)
                     : ls_sha256_update(&sha, t->value, values * sizeof *t->value);
    if (!status)
        status = ls_sha256_update(&sha, t->label, n * sizeof *t->label);
    if (!status)
        return ls_sha256_final(&sha, hex);
    ls_sha256_close(&sha);
    return status;
}
