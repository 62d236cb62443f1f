/*
 * host.h - what the system tells of itself and of its processes.
 */
#ifndef LS_CORE_HOST_H
#define LS_CORE_HOST_H

enum { LS_BOOT_BYTES = 64 };

/* The same text in all processes of one system, until it boots again; padded with NULs, ""
 * where the system does not tell. */
void ls_boot_id(char text[LS_BOOT_BYTES]);

/* 'R' running, 'S' sleeping, 'T' stopped, 'Z' dead and not yet fetched, ... (proc(5)); '\0': no
 * such process. */
char ls_process_state(long pid);

#endif
