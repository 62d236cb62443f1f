/*
 * fuzz_csv.c - tables of numbers that nobody vouches for.
 *
 * An input is the number of features (0 to 7, and 1) and of classes, a byte each, and a file.
 * What is accepted has finite values and labels below the classes, in rows that are whole.
 */
#include <math.h>

#include "data/table.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    ls_table_shape shape = {data[0] % 8 + 1, data[1] % 16 + 1};
    const char    *path  = fuzz_file(0, data + 2, size - 2);
    ls_table       table;
    float          row[8];

    if (!fuzz_accepted(ls_table_load(LS_FORMAT_CSV, (ls_paths){&path, 1}, shape, &table)))
        return 0;
    fuzz_expect(table.rows > 0 && table.features == shape.features);
    for (int64_t i = 0; i < table.rows; i++) {
        int32_t label = ls_table_read(&table, i, row);
        fuzz_expect(label >= 0 && label < shape.classes);
        for (int64_t k = 0; k < shape.features; k++)
            fuzz_expect(isfinite(row[k]));
    }
    ls_table_close(&table);
    return 0;
}
