#define _GNU_SOURCE /* memfd_create and seals: Linux's own */
/*
 * board.c - the job's board in a sealed memfd.
 *
 *     file = [ head | slot 0 | slot 1 | ... ]      each at a multiple of 64 bytes
 *
 * Whoever maps it can write all of it, a rank that runs wild too.  So the number of ranks is
 * read once, at the opening, and held against the file's size; and the file is sealed: nobody
 * can make it smaller under a mapping (SIGBUS).
 */
#include "dist/comm/board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"

#define MAGIC UINT64_C(0x6472616f626b6c73) /* "slkboard" */

enum { VERSION = 1, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

#define PUBLISHED (UINT64_C(1) << 32) /* beside a wait status, so that 0 is "not yet" */

typedef struct {
    uint64_t magic;
    uint32_t version, world;
    uint64_t slot_bytes;
} head;

typedef struct {
    _Alignas(64) _Atomic uint64_t ended; /* 0, or PUBLISHED | status of waitpid() */
    _Alignas(64) ls_recorder recorder;
} slot;

typedef struct {
    _Alignas(64) head head;
    slot slots[];
} layout;

struct ls_board {
    layout *map;
    size_t  bytes;
    int     fd, world;
    bool    owns_fd;
};

static size_t bytes_for(int world)
{
    return sizeof(layout) + (size_t)world * sizeof(slot);
}

static ls_status failed(const char *verb)
{
    return ls_fail(LS_EIO, "board: %s: %s", verb, strerror(errno));
}

/* Takes over nothing: on failure fd is still the caller's. */
static ls_status map_board(int fd, int world, ls_board **board)
{
    ls_board *b = ls_calloc(1, sizeof *b);

    if (!b)
        return LS_ENOMEM;
    *b        = (ls_board){.fd = fd, .world = world, .bytes = bytes_for(world)};
    void *map = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        free(b);
        return failed("cannot be mapped");
    }
    b->map = map;
    *board = b;
    return LS_OK;
}

ls_status ls_board_new(int world, ls_board **board)
{
    ls_board *b = NULL;
    ls_status status;

    *board = NULL;
    if (world < 1)
        return ls_fail(LS_EINVAL, "board: %d ranks, want 1 or more", world);
    int fd = memfd_create("lockstep-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return failed("cannot be made");
    status = LS_EIO;
    if (ftruncate(fd, (off_t)bytes_for(world)) || fcntl(fd, F_ADD_SEALS, SEALS)) {
        failed("cannot be given its size");
        goto out_fd;
    }
    status = map_board(fd, world, &b);
    if (!b)
        goto out_fd;
    b->map->head = (head){.magic      = MAGIC,
                          .version    = VERSION,
                          .world      = (uint32_t)world,
                          .slot_bytes = sizeof(slot)};
    b->owns_fd   = true;
    *board       = b;
    return LS_OK;

out_fd:
    close(fd);
    return status;
}

static ls_status check_head(const head *h, off_t bytes)
{
    if (h->magic != MAGIC)
        return ls_fail(LS_EINVAL, "board: the file does not start as one");
    if (h->version != VERSION || h->slot_bytes != sizeof(slot))
        return ls_fail(LS_EINVAL,
                       "board: version %u with %llu bytes a rank, want version %d with %zu",
                       h->version, (unsigned long long)h->slot_bytes, VERSION, sizeof(slot));
    if (h->world < 1 || h->world > INT32_MAX)
        return ls_fail(LS_EINVAL, "board: %u ranks", h->world);
    if ((uint64_t)bytes != bytes_for((int)h->world))
        return ls_fail(LS_EINVAL, "board: %lld bytes, want %zu for %u ranks", (long long)bytes,
                       bytes_for((int)h->world), h->world);
    return LS_OK;
}

ls_status ls_board_open(int fd, ls_board **board)
{
    struct stat about;
    head        h = {0};

    *board    = NULL;
    int seals = fcntl(fd, F_GET_SEALS); /* fails on anything but a memfd */
    if (seals < 0 || (seals & SEALS) != SEALS)
        return ls_fail(LS_EINVAL, "board: descriptor %d is not one", fd);
    if (fstat(fd, &about))
        return failed("cannot be examined");
    if (pread(fd, &h, sizeof h, 0) < 0)
        return failed("cannot be read");
    ls_status status = check_head(&h, about.st_size);
    return status ? status : map_board(fd, (int)h.world, board);
}

void ls_board_free(ls_board *board)
{
    if (!board)
        return;
    munmap(board->map, board->bytes);
    if (board->owns_fd)
        close(board->fd);
    free(board);
}

int ls_board_fd(const ls_board *board)
{
    return board->fd;
}

int ls_board_world(const ls_board *board)
{
    return board->world;
}

ls_recorder *ls_board_recorder(ls_board *board, int rank)
{
    return &board->map->slots[rank].recorder;
}

void ls_board_ended(ls_board *board, int rank, int wait_status)
{
    atomic_store(&board->map->slots[rank].ended, PUBLISHED | (uint32_t)wait_status);
}

bool ls_board_how_ended(const ls_board *board, int rank, int *wait_status)
{
    uint64_t ended = atomic_load(&board->map->slots[rank].ended);

    if (!ended)
        return false;
    *wait_status = (int)(uint32_t)ended;
    return true;
}
