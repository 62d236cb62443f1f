/*
 * fuzz_idx.c - idx files that nobody vouches for.
 *
 * An input is the number of features and of classes, the bytes of the images' file (a byte
 * each), the images' file and the labels'.  What is accepted has values of 0 to 1 and labels
 * below the classes, as many as the files have bytes where they are not compressed.
 */
#include "data/table.h"
#include "fuzz/fuzz.h"

enum { HEAD = 3 };

static void check_size(const uint8_t *file, size_t size, int64_t values)
{
    if (file[0] != 0x1f)
        fuzz_expect(size == 4 + 4 * (size_t)file[3] + (size_t)values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return 0;
    ls_table_shape shape  = {data[0] % 64 + 1, data[1] % 16 + 1};
    size_t         images = data[2] < size - HEAD ? data[2] : size - HEAD;
    const char    *path[] = {fuzz_file(0, data + HEAD, images),
                             fuzz_file(1, data + HEAD + images, size - HEAD - images)};
    ls_table       table;
    float          row[64];

    if (!fuzz_accepted(ls_table_load(LS_FORMAT_IDX, (ls_paths){path, 2}, shape, &table)))
        return 0;
    fuzz_expect(table.rows > 0 && table.features == shape.features);
    check_size(data + HEAD, images, table.rows * table.features);
    check_size(data + HEAD + images, size - HEAD - images, table.rows);
    for (int64_t i = 0; i < table.rows; i++) {
        int32_t label = ls_table_read(&table, i, row);
        fuzz_expect(label >= 0 && label < shape.classes);
        for (int64_t k = 0; k < shape.features; k++)
            fuzz_expect(row[k] >= 0 && row[k] <= 1);
    }
    ls_table_close(&table);
    return 0;
}
