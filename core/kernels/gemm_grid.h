/*
 * gemm_grid.h - how the output of a product is cut, for products of every type.
 *
 * Note [the grid] in gemm.c has the reasons.
 */
#ifndef LS_CORE_KERNELS_GEMM_GRID_H
#define LS_CORE_KERNELS_GEMM_GRID_H

#include "core/thread.h"

typedef struct {
    int64_t m, n;           /* of the output */
    int64_t tile_m, tile_n; /* of a tile, but for the last of a row or column */
    int64_t tiles;
} ls_gemm_grid;

/* A function of m and n alone, both at least 1. */
ls_gemm_grid ls_gemm_grid_of(int64_t m, int64_t n);

/* Rows and columns of tile `index`; tiles follow each other down the rows. */
void ls_gemm_grid_tile(const ls_gemm_grid *grid, int64_t index, ls_block *rows, ls_block *cols);

#endif
