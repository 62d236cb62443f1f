/*
 * table_impl.h - the readers of table.c.
 */
#ifndef LS_DATA_TABLE_IMPL_H
#define LS_DATA_TABLE_IMPL_H

#include "data/table.h"

LS_MUST_CHECK ls_status ls__csv_load(ls_paths paths, ls_table_shape shape, ls_table *table);
LS_MUST_CHECK ls_status ls__idx_load(ls_paths paths, ls_table_shape shape, ls_table *table);

#endif
