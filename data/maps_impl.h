/*
 * maps_impl.h - two hash tables: from strings of bytes, and from pairs of tokens, to an int32.
 *
 * Open addressing, at most half full, nothing is ever removed; {0} is an empty one.  Hashes
 * depend on where the table's first slots happened to lie, so that no file can be made whose
 * keys all collide; what is found does not.
 */
#ifndef LS_DATA_MAPS_IMPL_H
#define LS_DATA_MAPS_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

typedef struct {
    const unsigned char *key; /* borrowed: it stays where it is; NULL: free */
    uint32_t             bytes;
    int32_t              value;
} ls__bytes_slot;

typedef struct {
    ls__bytes_slot *slot;
    size_t          capacity, count;
    uint64_t        seed;
} ls__bytes_map;

typedef struct {
    uint64_t key; /* first token in the upper half, second in the lower, plus 1; 0: free */
    int32_t  value;
} ls__pair_slot;

typedef struct {
    ls__pair_slot *slot;
    size_t         capacity, count;
    uint64_t       seed;
} ls__pair_map;

/*
 * The value of a key, which stays valid until the next one is added; a new key has -1.  NULL:
 * ENOMEM.
 */
int32_t *ls__bytes_map_at(ls__bytes_map *map, const unsigned char *key, size_t bytes);
int32_t *ls__pair_map_at(ls__pair_map *map, int32_t first, int32_t second);

/* The value of a key, -1 without one. */
int32_t ls__bytes_map_find(const ls__bytes_map *map, const unsigned char *key, size_t bytes);
int32_t ls__pair_map_find(const ls__pair_map *map, int32_t first, int32_t second);

void ls__bytes_map_free(ls__bytes_map *map);
void ls__pair_map_free(ls__pair_map *map);

#endif
