/*
 * maps.c - linear probing.
 */
#include "data/maps_impl.h"

#include <string.h>

#include "core/alloc.h"

enum { LEAST = 64 };

/* The finalizer of MurmurHash3 (Appleby 2011, public domain): every bit changes all others. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

/* Addresses of a process are drawn by the system. */
static uint64_t seed_of(const void *slots)
{
    return mix((uintptr_t)slots);
}

static uint64_t hash_bytes(uint64_t seed, const unsigned char *key, size_t n)
{
    uint64_t h = seed ^ n, word;

    for (; n >= sizeof word; n -= sizeof word, key += sizeof word) {
        memcpy(&word, key, sizeof word);
        h = mix(h ^ word);
    }
    word = 0;
    memcpy(&word, key, n);
    return mix(h ^ word);
}

/* Zeroed room for twice as many slots as there are. */
static void *new_slots(size_t capacity, size_t slot_bytes)
{
    void *slots = ls_mem_alloc(capacity * slot_bytes, LS_MEM_OTHER);

    return slots ? memset(slots, 0, capacity * slot_bytes) : NULL;
}

static ls__bytes_slot *bytes_slot(const ls__bytes_map *map, const unsigned char *key, size_t n)
{
    size_t mask = map->capacity - 1, i = hash_bytes(map->seed, key, n) & mask;

    while (map->slot[i].key && (map->slot[i].bytes != n || memcmp(map->slot[i].key, key, n)))
        i = (i + 1) & mask;
    return &map->slot[i];
}

static ls_status grow_bytes(ls__bytes_map *map)
{
    size_t        old = map->slot ? map->capacity : 0, capacity = old ? 2 * old : LEAST;
    ls__bytes_map larger = {new_slots(capacity, sizeof *map->slot), capacity, map->count,
                            map->seed};

    if (!larger.slot)
        return LS_ENOMEM;
    if (!map->slot)
        larger.seed = seed_of(larger.slot);
    for (size_t i = 0; i < old; i++)
        if (map->slot[i].key)
            *bytes_slot(&larger, map->slot[i].key, map->slot[i].bytes) = map->slot[i];
    ls__bytes_map_free(map);
    *map = larger;
    return LS_OK;
}

int32_t *ls__bytes_map_at(ls__bytes_map *map, const unsigned char *key, size_t bytes)
{
    if (2 * map->count >= map->capacity && grow_bytes(map))
        return NULL;
    ls__bytes_slot *slot = bytes_slot(map, key, bytes);
    if (!slot->key) {
        *slot = (ls__bytes_slot){key, (uint32_t)bytes, -1};
        map->count++;
    }
    return &slot->value;
}

int32_t ls__bytes_map_find(const ls__bytes_map *map, const unsigned char *key, size_t bytes)
{
    const ls__bytes_slot *slot = map->capacity ? bytes_slot(map, key, bytes) : NULL;

    return slot && slot->key ? slot->value : -1;
}

void ls__bytes_map_free(ls__bytes_map *map)
{
    ls_mem_free(map->slot, map->capacity * sizeof *map->slot, LS_MEM_OTHER);
    *map = (ls__bytes_map){0};
}

static uint64_t pair_key(int32_t first, int32_t second)
{
    return ((uint64_t)(uint32_t)first << 32 | (uint32_t)second) + 1;
}

static ls__pair_slot *pair_slot(const ls__pair_map *map, uint64_t key)
{
    size_t mask = map->capacity - 1, i = mix(key ^ map->seed) & mask;

    while (map->slot[i].key && map->slot[i].key != key)
        i = (i + 1) & mask;
    return &map->slot[i];
}

static ls_status grow_pairs(ls__pair_map *map)
{
    size_t       old = map->slot ? map->capacity : 0, capacity = old ? 2 * old : LEAST;
    ls__pair_map larger = {new_slots(capacity, sizeof *map->slot), capacity, map->count,
                           map->seed};

    if (!larger.slot)
        return LS_ENOMEM;
    if (!map->slot)
        larger.seed = seed_of(larger.slot);
    for (size_t i = 0; i < old; i++)
        if (map->slot[i].key)
            *pair_slot(&larger, map->slot[i].key) = map->slot[i];
    ls__pair_map_free(map);
    *map = larger;
    return LS_OK;
}

int32_t *ls__pair_map_at(ls__pair_map *map, int32_t first, int32_t second)
{
    if (2 * map->count >= map->capacity && grow_pairs(map))
        return NULL;
    ls__pair_slot *slot = pair_slot(map, pair_key(first, second));
    if (!slot->key) {
        *slot = (ls__pair_slot){pair_key(first, second), -1};
        map->count++;
    }
    return &slot->value;
}

int32_t ls__pair_map_find(const ls__pair_map *map, int32_t first, int32_t second)
{
    const ls__pair_slot *slot = map->capacity ? pair_slot(map, pair_key(first, second)) : NULL;

    return slot && slot->key ? slot->value : -1;
}

void ls__pair_map_free(ls__pair_map *map)
{
    ls_mem_free(map->slot, map->capacity * sizeof *map->slot, LS_MEM_OTHER);
    *map = (ls__pair_map){0};
}
