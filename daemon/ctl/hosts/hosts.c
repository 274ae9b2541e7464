// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/hosts/hosts.h"

#include <ctype.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stages/base/host/fs.h"

#define MAX_FILE  ((size_t)1 << 20)
#define MAX_NAME  253 /* maximum bytes of a host name (RFC 1035) */
#define MAX_SLOTS 65536

/* --- the local host ------------------------------------------------------- */

static bool is_same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (b == NULL || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)a)->sin_addr,
                      &((const struct sockaddr_in *)b)->sin_addr,
                      sizeof(struct in_addr)) == 0;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

static bool has_our_address(const char *name)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    struct ifaddrs *ours = NULL;
    bool same = false;

    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    if (getifaddrs(&ours) == 0)
        for (const struct addrinfo *a = found; a != NULL; a = a->ai_next)
            for (const struct ifaddrs *o = ours; o != NULL; o = o->ifa_next)
                same |= is_same_address(a->ai_addr, o->ifa_addr);
    freeifaddrs(ours);
    freeaddrinfo(found);
    return same;
}

static bool is_local(const char *name)
{
    char own[256] = "";
    size_t n;

    (void)gethostname(own, sizeof(own) - 1);
    n = strcspn(own, ".");
    return strcmp(name, "localhost") == 0 || strcmp(name, own) == 0 ||
           (strlen(name) == n && strncmp(name, own, n) == 0) ||
           has_our_address(name);
}

/* --- lists ---------------------------------------------------------------- */

/* True for a host name. It begins with a letter or digit, so ssh and mpirun do
 * not take it for an option. */
static bool is_name(const char *text, size_t n)
{
    if (n == 0 || n > MAX_NAME || !isalnum((unsigned char)text[0]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '.' &&
            text[i] != '-' && text[i] != '_')
            return false;
    return true;
}

/* Adds a host. If it is listed twice, its slots are added. */
static enum pst_status add_host(struct pstctl_hosts *h, const char *name,
                                size_t n, unsigned slots, struct pst_diag *diag)
{
    struct pstctl_host host = {.slots = slots};

    for (size_t i = 0; i < h->list.n; i++) {
        struct pstctl_host *had = &h->list.at[i];

        if (strlen(had->name) != n || strncmp(had->name, name, n) != 0)
            continue;
        had->slots = PST_MAX(1u, had->slots) + PST_MAX(1u, slots);
        return PST_OK;
    }
    if (h->list.n >= PSTCTL_MAX_HOSTS)
        return pst_diag_set(diag, PST_E_HOSTS_FILE, "more than %u hosts",
                            PSTCTL_MAX_HOSTS);
    host.name = pst_alloc(PST_TAG_CLIENT, n + 1);
    if (host.name == NULL)
        return pst_diag_nomem(diag, n);
    memcpy(host.name, name, n);
    host.name[n] = '\0';
    if (pst_vec_push(PST_TAG_CLIENT, &h->list, host))
        return PST_OK;
    pst_free(host.name);
    return pst_diag_nomem(diag, sizeof(host));
}

/* Parses the digits before `end`; returns 0 if they are not a valid number of
 * slots. */
static unsigned read_slots(const char *text, const char *end)
{
    unsigned n = 0;

    if (text == end)
        return 0;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return 0;
        n = n * 10 + (unsigned)(*text - '0');
        if (n > MAX_SLOTS)
            return 0;
    }
    return n;
}

enum pst_status pstctl_hosts_add(struct pstctl_hosts *h, const char *text,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (const char *at = text; status == PST_OK;) {
        const size_t n = strcspn(at, ","), name = strcspn(at, ":,");
        const unsigned slots = name < n ? read_slots(at + name + 1, at + n) : 0;

        if (!is_name(at, name) || (name < n && slots == 0))
            return pst_diag_set(
                diag, PST_E_HOSTS_WORDS,
                "\"%.*s\" is not a host: NAME or NAME:SLOTS, with "
                "1 to %d slots",
                (int)PST_MIN(n, (size_t)MAX_NAME), at, MAX_SLOTS);
        status = add_host(h, at, name, slots, diag);
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    return status;
}

/* Parses one line of a host file, without newline and comment. */
static enum pst_status read_line(struct pstctl_hosts *h, const char *line,
                                 size_t n, struct pst_diag *diag)
{
    static const char key[] = "slots=";
    const char *const end = line + n;
    const char *name, *rest;
    unsigned slots = 0;
    size_t length;

    while (line < end && isspace((unsigned char)*line))
        line++;
    for (name = line; line < end && !isspace((unsigned char)*line);)
        line++;
    length = (size_t)(line - name);
    if (length == 0)
        return PST_OK;
    while (line < end && isspace((unsigned char)*line))
        line++;
    for (rest = end; rest > line && isspace((unsigned char)rest[-1]);)
        rest--;
    if (line < rest && (size_t)(rest - line) > strlen(key) &&
        strncmp(line, key, strlen(key)) == 0)
        slots = read_slots(line + strlen(key), rest);
    if (!is_name(name, length) || (line < rest && slots == 0))
        return pst_diag_set(
            diag, PST_E_HOSTS_FILE,
            "\"%.*s\" is not a host: NAME or NAME slots=N, with 1 "
            "to %d slots",
            (int)PST_MIN((size_t)(rest - name), 200u), name, MAX_SLOTS);
    return add_host(h, name, length, slots, diag);
}

enum pst_status pstctl_hosts_read(struct pstctl_hosts *h, const char *path,
                                  struct pst_diag *diag)
{
    char *text = NULL;
    size_t size = 0;
    unsigned number = 0;
    enum pst_status status = pst_file_read(path, MAX_FILE, &text, &size, diag);

    for (const char *at = text; status == PST_OK && *at != '\0';) {
        const size_t n = strcspn(at, "\n"), said = strcspn(at, "#\n");

        number++;
        status = read_line(h, at, PST_MIN(n, said), diag);
        at += n + (at[n] == '\n');
    }
    if (status != PST_OK && number > 0) {
        const struct pst_diag was = *diag;

        status = pst_diag_pass(diag, &was, "%s:%u: %s", path, number, was.text);
    } else if (status == PST_OK && h->list.n == 0) {
        status =
            pst_diag_set(diag, PST_E_HOSTS_FILE, "%s: names no host", path);
    }
    pst_free(text);
    return status;
}

/* Moves this host to the front of the list. It is an error if this host is
 * listed under two names. */
static enum pst_status put_local_first(struct pstctl_hosts *h,
                                       struct pst_diag *diag)
{
    size_t n = 0, at = 0;
    struct pstctl_host host;

    for (size_t i = h->list.n; i-- > 0;) {
        h->list.at[i].local = is_local(h->list.at[i].name);
        n += h->list.at[i].local;
        at = h->list.at[i].local ? i : at;
    }
    if (n == 0)
        return pst_diag_set(
            diag, PST_E_HOSTS_WORDS,
            "this host is not one of the given hosts, but rank 0 "
            "runs where penstock is started: add localhost, or "
            "start it on one of them");
    if (n > 1)
        return pst_diag_set(diag, PST_E_HOSTS_WORDS,
                            "%zu of the hosts are names of this one: give it "
                            "once, with its slots",
                            n);
    host = h->list.at[at];
    memmove(h->list.at + 1, h->list.at, at * sizeof(host));
    h->list.at[0] = host;
    return PST_OK;
}

enum pst_status pstctl_hosts_init(struct pstctl_hosts *h,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    *h = (struct pstctl_hosts){0};
    if (config->hosts != NULL && config->hostfile != NULL)
        return pst_diag_set(
            diag, PST_E_HOSTS_WORDS,
            "--hosts and --hostfile exclude each other: give one "
            "of them");
    if (config->hosts != NULL)
        status = pstctl_hosts_add(h, config->hosts, diag);
    else if (config->hostfile != NULL)
        status = pstctl_hosts_read(h, config->hostfile, diag);
    else
        return PST_OK;
    return status == PST_OK ? put_local_first(h, diag) : status;
}

void pstctl_hosts_fini(struct pstctl_hosts *h)
{
    for (size_t i = 0; i < h->list.n; i++)
        pst_free(h->list.at[i].name);
    pst_vec_fini(&h->list);
}

/* --- ranks per host ------------------------------------------------------- */

static bool has_numbers(const struct pstctl_hosts *h)
{
    bool any = false;

    for (size_t i = 0; i < h->list.n; i++)
        any |= h->list.at[i].slots > 0;
    return any;
}

unsigned pstctl_hosts_slots(const struct pstctl_hosts *h)
{
    unsigned available = 0;

    if (!has_numbers(h))
        return UINT_MAX;
    for (size_t i = 0; i < h->list.n; i++)
        if (!h->list.at[i].away)
            available += PST_MAX(1u, h->list.at[i].slots);
    return available;
}

enum pst_status pstctl_hosts_place(struct pstctl_hosts *h, unsigned ranks,
                                   struct pst_diag *diag)
{
    const bool numbers = has_numbers(h);
    const unsigned available = pstctl_hosts_slots(h);
    unsigned left = ranks, hosts = 0;

    for (size_t i = 0; i < h->list.n; i++)
        hosts += !h->list.at[i].away;
    if (available < ranks || hosts == 0)
        return pst_diag_set(diag, PST_E_HOSTS_WORDS,
                            "the hosts have %u slots, the job has %u ranks: "
                            "add hosts or slots, or give a smaller -n",
                            hosts == 0 ? 0 : available, ranks);
    for (size_t i = 0; i < h->list.n; i++) {
        struct pstctl_host *host = &h->list.at[i];
        unsigned most = numbers ? PST_MAX(1u, host->slots) : 0;

        host->ranks = 0;
        if (host->away)
            continue;
        if (!numbers)
            most = (left + hosts - 1) / hosts;
        host->ranks = PST_MIN(most, left);
        left -= host->ranks;
        hosts--;
    }
    return PST_OK;
}

unsigned pstctl_hosts_most(const struct pstctl_hosts *h)
{
    unsigned most = 0;

    for (size_t i = 0; i < h->list.n; i++)
        most = PST_MAX(most, h->list.at[i].ranks);
    return most;
}

void pstctl_hosts_text(const struct pstctl_hosts *h, struct pst_str *out)
{
    for (size_t i = 0; i < h->list.n; i++)
        if (h->list.at[i].ranks > 0)
            pst_str_addf(out, "%s%s:%u", out->len > 0 ? "," : "",
                         h->list.at[i].name, h->list.at[i].ranks);
}

/* True if the batch system provides several nodes: Slurm sets their number,
 * other systems list them in a file. */
static bool has_batch_nodes(void)
{
    static const char *const files[] = {"PBS_NODEFILE", "PE_HOSTFILE",
                                        "LSB_DJOB_HOSTFILE"};
    const char *nodes = getenv("SLURM_JOB_NUM_NODES"); // NOLINT: one thread
    int64_t n = 0;

    if (nodes != NULL && pst_parse_i64(nodes, &n) && n > 1)
        return true;
    for (size_t i = 0; i < PST_COUNT(files); i++)
        if (getenv(files[i]) != NULL) // NOLINT(concurrency-mt-unsafe)
            return true;
    return false;
}

bool pstctl_hosts_are_several(const struct pstctl_hosts *h)
{
    unsigned n = 0;

    if (h->list.n == 0)
        return has_batch_nodes();
    for (size_t i = 0; i < h->list.n; i++)
        n += h->list.at[i].ranks > 0;
    return n > 1;
}
