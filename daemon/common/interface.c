// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/str.h"

struct word {
    char text[64];
    int family; /* AF_UNSPEC: the word is a name */
    unsigned char network[16];
    unsigned bits;
};

/* Parses w->text as a network; returns false if it is not one. */
static bool read_network(struct word *w)
{
    char *slash = strchr(w->text, '/'), *end;
    unsigned long bits;

    bits = strtoul(slash + 1, &end, 10);
    if (slash[1] < '0' || slash[1] > '9' || *end != '\0')
        return false;
    *slash = '\0';
    w->family = strchr(w->text, ':') != NULL ? AF_INET6 : AF_INET;
    w->bits = (unsigned)PST_MIN(bits, 1000ul);
    return inet_pton(w->family, w->text, w->network) == 1 &&
           bits <= (w->family == AF_INET6 ? 128 : 32);
}

static bool same_bits(const unsigned char *a, const unsigned char *b,
                      unsigned bits)
{
    const unsigned char rest = (unsigned char)(0xff00u >> bits % 8);

    return memcmp(a, b, bits / 8) == 0 &&
           (bits % 8 == 0 || ((a[bits / 8] ^ b[bits / 8]) & rest) == 0);
}

/* Returns the bytes of an interface's IPv4 or IPv6 address; NULL: the interface
 * is down, or this is another kind of address. */
static const void *address_of(const struct ifaddrs *a)
{
    if (a->ifa_addr == NULL || !(a->ifa_flags & IFF_UP))
        return NULL;
    if (a->ifa_addr->sa_family == AF_INET)
        return &((const struct sockaddr_in *)(const void *)a->ifa_addr)
                    ->sin_addr;
    if (a->ifa_addr->sa_family == AF_INET6)
        return &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)
                    ->sin6_addr;
    return NULL;
}

static bool has_interface(const struct word *w, const struct ifaddrs *all)
{
    for (; all != NULL; all = all->ifa_next) {
        const void *address = address_of(all);

        if (address == NULL)
            continue;
        if (w->family == AF_UNSPEC
                ? strcmp(w->text, all->ifa_name) == 0
                : w->family == all->ifa_addr->sa_family &&
                      same_bits(w->network, address, w->bits))
            return true;
    }
    return false;
}

/* Appends the interfaces and their addresses: "lo (127.0.0.1), eth0
 * (10.0.0.1)". */
static void add_interfaces(const struct ifaddrs *all, struct pst_str *out)
{
    for (; all != NULL; all = all->ifa_next) {
        const void *address = address_of(all);
        char text[INET6_ADDRSTRLEN];

        if (address != NULL && inet_ntop(all->ifa_addr->sa_family, address,
                                         text, sizeof(text)) != NULL)
            pst_str_addf(out, "%s%s (%s)", out->len > 0 ? ", " : "",
                         all->ifa_name, text);
    }
}

static enum pst_status check_name(const char *words, const struct ifaddrs *all,
                                  struct pst_diag *diag)
{
    bool found = false;
    struct pst_str there = {0};

    for (const char *at = words;; at++) {
        const size_t n = strcspn(at, ",");
        struct word w = {.family = AF_UNSPEC};

        memcpy(w.text, at, PST_MIN(n, sizeof(w.text) - 1));
        if (n == 0 || n >= sizeof(w.text) ||
            (strchr(w.text, '/') != NULL && !read_network(&w)))
            return pst_diag_set(diag, PST_E_OPTION_VALUE,
                                "--interface %s: '%.*s' is not a name of an "
                                "interface and no NETWORK/BITS",
                                words, (int)PST_MIN(n, (size_t)64), at);
        found = found || has_interface(&w, all);
        at += n;
        if (*at == '\0')
            break;
    }
    if (found)
        return PST_OK;
    add_interfaces(all, &there);
    (void)pst_diag_set(diag, PST_E_OPTION_VALUE,
                       "--interface %s: none of these is up here; there are %s",
                       words, pst_str_text(&there));
    pst_str_fini(&there);
    return PST_ERR_USAGE;
}

enum pst_status pstd_interface_check(const char *words, struct pst_diag *diag)
{
    struct ifaddrs *all = NULL;
    enum pst_status status;

    if (getifaddrs(&all) != 0)
        return pst_diag_errno(diag, errno, "cannot list network interfaces");
    status = check_name(words, all, diag);
    freeifaddrs(all);
    return status;
}
