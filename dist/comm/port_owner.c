/*
 * port_owner.c - which process listens at an address: /proc/net/tcp gives the socket's number,
 * /proc/<pid>/fd who holds it.
 */
#include <ctype.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/comm/address_impl.h"

/* The inode of a socket that listens at the port: at this address or at all; 0: none. */
static unsigned long find_listener(const char *table, const char *hex, uint32_t port)
{
    char          line[512], local[64];
    unsigned long inode = 0, found;
    unsigned      state, at;
    FILE         *file = fopen(table, "re");

    while (file && !inode && fgets(line, sizeof line, file)) {
        if (sscanf(line, " %*u: %63[0-9A-F]:%X %*[0-9A-F]:%*X %X %*s %*s %*s %*u %*u %lu",
                   local, &at, &state, &found) != 4)
            continue;
        bool any = strspn(local, "0") == strlen(local);
        if (state == 0x0A && at == port && (any || !strcmp(local, hex)))
            inode = found;
    }
    if (file)
        fclose(file);
    return inode;
}

/* As the table writes it: 32-bit words in this machine's order. */
static void hex_of(const ls__tcp_address *a, char hex[33])
{
    const struct sockaddr_in  *v4 = (const struct sockaddr_in *)&a->at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->at;
    uint32_t                   word[4];
    int                        words = a->at.ss_family == AF_INET ? 1 : 4;

    if (words == 1)
        memcpy(word, &v4->sin_addr, 4);
    else
        memcpy(word, &v6->sin6_addr, 16);
    for (int i = 0; i < words; i++)
        snprintf(hex + 8 * i, 9, "%08X", (unsigned)word[i]);
}

/* Does the process hold the socket? */
static bool holds(const char *pid, const char *socket_name)
{
    char           path[300], target[64];
    DIR           *folder;
    bool           found = false;
    struct dirent *entry;

    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    if (!(folder = opendir(path)))
        return false;
    while (!found && (entry = readdir(folder))) {
        snprintf(path, sizeof path, "/proc/%.20s/fd/%.20s", pid, entry->d_name);
        ssize_t n             = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        found                 = !strcmp(target, socket_name);
    }
    closedir(folder);
    return found;
}

static long find_holder(unsigned long inode)
{
    char           name[64];
    long           pid    = 0;
    DIR           *folder = opendir("/proc");
    struct dirent *entry;

    snprintf(name, sizeof name, "socket:[%lu]", inode);
    while (folder && !pid && (entry = readdir(folder)))
        if (isdigit((unsigned char)entry->d_name[0]) && holds(entry->d_name, name))
            pid = strtol(entry->d_name, NULL, 10);
    if (folder)
        closedir(folder);
    return pid;
}

const char *ls__process_text(long pid, char *text, size_t size)
{
    char   path[64], line[80];
    size_t n = 0;

    snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (file) {
        n = fread(line, 1, sizeof line - 1, file);
        fclose(file);
    }
    while (n && !line[n - 1])
        n--;
    for (size_t i = 0; i < n; i++) /* arguments end in NUL */
        if (iscntrl((unsigned char)line[i]))
            line[i] = ' ';
    line[n] = '\0';
    snprintf(text, size, n ? "pid %ld (%s)" : "pid %ld%s", pid, line);
    return text;
}

const char *ls__port_owner(const char *address, uint32_t port, char *text, size_t size)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    ls__tcp_address          a;
    char                     hex[33];
    unsigned long            inode = 0;

    text[0] = '\0';
    if (ls__tcp_resolve(address, port, &a))
        return text;
    hex_of(&a, hex);
    for (int i = 0; i < 2 && !inode; i++)
        inode = find_listener(tables[i], hex, port);
    long pid = inode ? find_holder(inode) : 0;
    return pid ? ls__process_text(pid, text, size) : text;
}
