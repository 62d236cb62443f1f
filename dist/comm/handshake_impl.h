/*
 * handshake_impl.h - what ranks say to rank 0 when they meet, and how each proves itself.
 *
 *     rank r  ──────────── connects ───────────>  rank 0
 *             <── challenge { nonce of rank 0 } ──
 *             ── proof { nonce of r, rank, world, run id, restart, where r is; mac } ──>
 *             <── verdict { welcome, or why not; mac } ──          ... all have come ...
 *             <── verdict { go, or who is missing; mac } ──
 *             <── table { where everybody is; mac } ──
 *             ── tried { lower ranks that r reached by Unix sockets; mac } ──>
 *             <── ways { higher ranks that reached r so; mac } ──
 *
 * mac = HMAC-SHA-256 (RFC 2104) with the job's secret over a label, which names the message
 * and so its sender's role, both nonces, and the message.  So a message fits one place of one
 * connection: it cannot be played again, or back to where it came from.  Sizes are fixed (the
 * table's by the receiver's own world), and nothing is used before its mac was compared.
 * Without a secret the key is empty, and the kernel (SO_PEERCRED) tells who is there.
 */
#ifndef LS_DIST_COMM_HANDSHAKE_IMPL_H
#define LS_DIST_COMM_HANDSHAKE_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { LS__MAC = 32, LS__NONCE = 32, LS__VERDICT_TEXT = 400, LS__HANDSHAKE_VERSION = 1 };

#define LS__HANDSHAKE_MAGIC UINT64_C(0x7a7664722d706c73) /* "slp-rdvz" */

/* One connection: the key and the two numbers that make it unlike any other. */
typedef struct {
    const char   *secret; /* "" where there is none */
    unsigned char host[LS__NONCE], guest[LS__NONCE];
} ls__session;

/* Where a rank is. */
typedef struct {
    char     identity[64]; /* of its host */
    char     address[64];  /* numeric, where it listens; "": it does not */
    uint64_t token[2];     /* random: who connects must show it */
    uint64_t name[2];      /* random: its abstract Unix socket */
    uint32_t port, unused;
} ls__whereabouts;

typedef struct {
    uint64_t      magic;
    uint32_t      version, unused;
    unsigned char nonce[LS__NONCE];
} ls__challenge;

typedef struct {
    uint64_t        magic;
    uint32_t        version, rank, world, restart;
    int64_t         left_ns; /* how long it will wait for the others */
    char            run_id[128];
    unsigned char   nonce[LS__NONCE];
    ls__whereabouts at;
    unsigned char   mac[LS__MAC];
} ls__proof;

typedef enum {
    LS__WELCOME,  /* joined; the next verdict comes when all have */
    LS__GO,       /* all have joined; the table follows */
    LS__STRANGER, /* another job */
    LS__REFUSED,  /* of this job, but it cannot be: text says why */
    LS__FAILED    /* nobody will go: text says why */
} ls__verdict_code;

typedef struct {
    uint64_t      magic;
    uint32_t      code;
    uint32_t      status; /* ls_status, of FAILED */
    char          text[LS__VERDICT_TEXT];
    unsigned char mac[LS__MAC];
} ls__verdict;

_Static_assert(sizeof(ls__whereabouts) == 168, "no padding on the wire");
_Static_assert(sizeof(ls__challenge) == 48, "no padding on the wire");
_Static_assert(sizeof(ls__proof) == 392, "no padding on the wire");
_Static_assert(sizeof(ls__verdict) == 448, "no padding on the wire");

/* What a mac is of; the label that goes into it. */
typedef enum {
    LS__OF_PROOF,
    LS__OF_WELCOME,
    LS__OF_GO,
    LS__OF_TABLE,
    LS__OF_TRIED,
    LS__OF_WAYS
} ls__mac_of;

/* From the system's generator.  EIO where it has none. */
LS_MUST_CHECK ls_status ls__random(void *bytes, size_t n);

/* The mac of data into mac. */
LS_MUST_CHECK ls_status ls__seal(const ls__session *s, ls__mac_of what, const void *data,
                                 size_t n, unsigned char mac[LS__MAC]);

/* Is this its mac?  In a time that does not tell where they differ. */
bool ls__sealed(const ls__session *s, ls__mac_of what, const void *data, size_t n,
                const unsigned char mac[LS__MAC]);

/* Compared in a time that does not tell where they differ. */
bool ls__same_secret(const void *a, const void *b, size_t n);

/* A sealed verdict; the text is cut to its place. */
LS_MUST_CHECK ls_status ls__verdict_make(const ls__session *s, ls__mac_of what,
                                         ls__verdict_code code, ls_status status,
                                         const char *text, ls__verdict *verdict);

/* Proved, whole, of this version, and its text ends. */
bool ls__verdict_holds(const ls__session *s, ls__mac_of what, const ls__verdict *verdict);

#endif
