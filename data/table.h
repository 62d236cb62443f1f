/*
 * table.h - examples for classification: rows of numbers, each with a class.
 *
 *     csv   lines of numbers, the class last; a header line or none
 *     idx   MNIST's: a file of images (bytes, here 0 to 1) and a file of labels
 *
 * Bytes stay bytes in memory: 60,000 images of 784 take 47 MB.
 */
#ifndef LS_DATA_TABLE_H
#define LS_DATA_TABLE_H

#include "core/sha256.h"
#include "data/token_format.h"

typedef struct {
    int64_t        rows, features;
    const float   *value;     /* rows x features, or ... */
    const uint8_t *byte;      /* ... these, each a 255th */
    const int32_t *label;     /* rows */
    void          *memory[2]; /* to give back; NULL for a slice */
    size_t         owned[2];
} ls_table;

typedef struct {
    int64_t features; /* that a row must have; model.sizes[0] */
    int32_t classes;  /* labels are below; the last of model.sizes */
} ls_table_shape;

/*
 * Files of csv one behind the other, or the two of idx: images, labels.  LS_EIO; LS_EFORMAT
 * with file, line and column (csv) or what was found and wanted (idx); LS_ECONFIG for a label
 * that is not below `classes`.
 */
LS_MUST_CHECK ls_status ls_table_load(ls_data_format format, ls_paths paths,
                                      ls_table_shape shape, ls_table *table);
void                    ls_table_close(ls_table *table); /* {0} is allowed */

/* A view of rows [first, first + count); valid as long as they are. */
ls_table ls_table_slice(const ls_table *table, int64_t first, int64_t count);

/* Copies a row's numbers to out (features), and returns its label. */
int32_t ls_table_read(const ls_table *table, int64_t row, float *out);

/* SHA-256 of the values as they are in memory, then the labels. */
LS_MUST_CHECK ls_status ls_table_sha256(const ls_table *table, char hex[LS_SHA256_HEX]);

#endif
