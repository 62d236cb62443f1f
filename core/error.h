/*
 * error.h - status codes and the last error message of a thread.
 *
 * Functions that can fail return an ls_status, or a pointer that is NULL on
 * failure.  The first failure writes a message here; callers pass the status on
 * and may put their own context in front of it.  The message is thread-local, so
 * ranks that run as threads of one process (tests) do not disturb each other.
 */
#ifndef LS_CORE_ERROR_H
#define LS_CORE_ERROR_H

#define LS_STATUS_MAP(X)                       \
    X(OK, "success")                           \
    X(ENOMEM, "out of memory")                 \
    X(ESHAPE, "shape or dtype mismatch")       \
    X(EINVAL, "invalid argument")              \
    X(ESTATE, "call out of order")             \
    X(EIO, "input/output error")               \
    X(EFORMAT, "malformed file")               \
    X(ECONFIG, "wrong usage or configuration") \
    X(EUNSUPPORTED, "not in this version")     \
    X(ENOTFINITE, "not finite")                \
    X(EINTERRUPTED, "interrupted")             \
    X(EMISMATCH, "ranks disagree")             \
    X(EPEER, "a peer is gone")                 \
    X(ETIMEOUT, "timed out")                   \
    X(EWORLD, "this number of ranks does not fit")

typedef enum {
#define X(name, text) LS_##name,
    LS_STATUS_MAP(X)
#undef X
        LS_STATUS_COUNT
} ls_status;

#define LS_MUST_CHECK __attribute__((warn_unused_result))
#define LS_PRINTF(at, first) __attribute__((format(printf, at, first)))

/* Text of a code, e.g. "out of memory".  Never NULL. */
const char *ls_status_text(ls_status status);

/* Message of the last failure on this thread, "" if none.  Owned by error.c. */
const char *ls_error_message(void);

/* Records a failure and returns status, so that `return ls_fail(...)` reads well. */
ls_status ls_fail(ls_status status, const char *fmt, ...) LS_PRINTF(2, 3);

/* Puts context in front of the message of a failure that is being passed on: "ctx: message". */
ls_status ls_fail_in(ls_status status, const char *fmt, ...) LS_PRINTF(2, 3);

#endif
