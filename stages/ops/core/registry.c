// SPDX-License-Identifier: Apache-2.0
#include "stages/base/checked.h"
#include "stages/ops/core/order.h"
#include "stages/ops/core/rows.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

static const struct pst_op *const ops[] = {
#define PST_OP(id) &pst_op_##id,
#include "stages/ops/core/ops.def"
};

#define N_OPS ((unsigned)PST_COUNT(ops))

/* Index of each row in the kernel tables of devices. */
static const int orders[] = {
#define PST_OP(id)           PST_AT_##id,
#define PST_OP_NO_KERNEL(id) -1,
#include "stages/ops/core/ops.def"
};

/* An entry per line of ops.def: the name of a family, or NULL for a row. */
static const char *const families[] = {
#define PST_OP(id)       NULL,
#define PST_FAMILY(name) name,
#include "stages/ops/core/ops.def"
};

static const struct {
    const char *name, *row;
} aliases[] = {
#define PST_ALIAS(name, row) {name, row},
#include "stages/ops/core/aliases.def"
#undef PST_ALIAS
};

/* Size of the hash table of addresses, a power of 2. */
#define N_SLOTS 4096
_Static_assert(PST_COUNT(ops) * 2 <= N_SLOTS, "the table of rows is too small");

static struct {
    bool ready;
    struct pst_arena arena; /* for the schemas */
    struct pst_schema schemas[PST_COUNT(ops)];
    const char *families[PST_COUNT(ops)];
    uint16_t slots[N_SLOTS]; /* by address: 1 + index, 0: free */
    struct pst_map names;    /* name -> row */
    unsigned n_holders;      /* pst_registry_hold */
} registry;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

/* Rows added at run time, the newest first. A release of `added` publishes a
 * row, which never changes afterwards, so readers take no lock. */
static struct pst_op_added *added;
static unsigned n_added;

/* Returns the slot of the row, or the free one for it. */
static uint16_t *slot_of(const struct pst_op *op)
{
    const uint64_t hash = (uint64_t)(uintptr_t)op * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(hash >> 32);

    while (registry.slots[at % N_SLOTS] != 0 &&
           ops[registry.slots[at % N_SLOTS] - 1] != op)
        at++;
    return &registry.slots[at % N_SLOTS];
}

/* Returns the number of op's row in ops.def; N_OPS if it has none, or before
 * init. */
static unsigned index_of(const struct pst_op *op)
{
    const unsigned found = registry.ready ? *slot_of(op) : 0;

    return found > 0 ? found - 1 : N_OPS;
}

/* Returns the entry of a row that was added at run time; NULL if it was not. */
static const struct pst_op_added *added_of(const struct pst_op *op)
{
    const struct pst_op_added *a = __atomic_load_n(&added, __ATOMIC_ACQUIRE);

    while (a != NULL && a->op != op)
        a = a->next;
    return a;
}

static const struct pst_op_added *added_named(const char *name)
{
    const struct pst_op_added *a = __atomic_load_n(&added, __ATOMIC_ACQUIRE);

    while (a != NULL && strcmp(a->schema->name, name) != 0)
        a = a->next;
    return a;
}

static enum pst_status add_row(unsigned i, struct pst_diag *diag)
{
    struct pst_schema *schema = &registry.schemas[i];
    enum pst_status status =
        pst_schema_parse(ops[i]->schema, &registry.arena, schema, diag);

    if (status != PST_OK)
        return status;
    *slot_of(ops[i]) = (uint16_t)(i + 1);
    if (pst_map_has(&registry.names, schema->name))
        return pst_diag_set(diag, PST_E_INTERNAL_BUG, "%s has two rows",
                            schema->name);
    if (!pst_map_put(&registry.names, schema->name, (void *)ops[i]))
        return pst_diag_nomem(diag, 0);
    return PST_OK;
}

static enum pst_status add_alias(unsigned i, struct pst_diag *diag)
{
    void *row = pst_map_get(&registry.names, aliases[i].row);

    if (row == NULL || pst_map_has(&registry.names, aliases[i].name))
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "%s cannot be another name of %s", aliases[i].name,
                            aliases[i].row);
    if (!pst_map_put(&registry.names, aliases[i].name, row))
        return pst_diag_nomem(diag, 0);
    return PST_OK;
}

static void set_families(void)
{
    const char *family = "";
    unsigned row = 0;

    for (size_t k = 0; k < PST_COUNT(families); k++) {
        if (families[k] != NULL)
            family = families[k];
        else
            registry.families[row++] = family;
    }
}

static enum pst_status fill_registry(struct pst_diag *diag)
{
    memset(registry.slots, 0, sizeof(registry.slots));
    pst_arena_init(&registry.arena, PST_TAG_BASE);
    pst_map_init(&registry.names, PST_TAG_BASE);
    for (unsigned i = 0; i < N_OPS + PST_COUNT(aliases); i++) {
        enum pst_status status =
            i < N_OPS ? add_row(i, diag) : add_alias(i - N_OPS, diag);

        if (status != PST_OK) {
            pst_map_fini(&registry.names);
            pst_arena_fini(&registry.arena);
            return status;
        }
    }
    set_families();
    registry.ready = true;
    return PST_OK;
}

enum pst_status pst_registry_init(struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    pthread_mutex_lock(&registry_lock);
    if (!registry.ready)
        status = fill_registry(diag);
    pthread_mutex_unlock(&registry_lock);
    return status;
}

enum pst_status pst_registry_hold(struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    pthread_mutex_lock(&registry_lock);
    if (!registry.ready)
        status = fill_registry(diag);
    registry.n_holders += status == PST_OK;
    pthread_mutex_unlock(&registry_lock);
    return status;
}

void pst_registry_release(void)
{
    pthread_mutex_lock(&registry_lock);
    if (--registry.n_holders == 0) {
        registry.ready = false;
        pst_map_fini(&registry.names);
        pst_arena_fini(&registry.arena);
    }
    pthread_mutex_unlock(&registry_lock);
}

static enum pst_status check_free(const struct pst_op_added *rows, unsigned i,
                                  struct pst_diag *diag)
{
    const char *name = rows[i].schema->name;
    bool taken = pst_op_find(name) != NULL;

    for (unsigned k = 0; k < i; k++)
        taken = taken || strcmp(rows[k].schema->name, name) == 0;
    return taken ? pst_diag_set(diag, PST_E_PLUGIN_NAME,
                                "there is an operator %s already", name)
                 : PST_OK;
}

enum pst_status pst_registry_add(struct pst_op_added *rows, unsigned n,
                                 struct pst_diag *diag)
{
    enum pst_status status = pst_registry_init(diag);

    if (status != PST_OK)
        return status;
    pthread_mutex_lock(&registry_lock);
    for (unsigned i = 0; i < n && status == PST_OK; i++)
        status = check_free(rows, i, diag);
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        rows[i].next = added;
        __atomic_store_n(&added, &rows[i], __ATOMIC_RELEASE);
        __atomic_add_fetch(&n_added, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&registry_lock);
    return status;
}

unsigned pst_registry_count(void)
{
    return N_OPS + __atomic_load_n(&n_added, __ATOMIC_ACQUIRE);
}

const struct pst_op *pst_registry_at(unsigned i)
{
    const struct pst_op_added *a;
    unsigned n;

    if (i < N_OPS)
        return ops[i];
    /* The list begins with the row added last, which has the largest number. */
    n = pst_registry_count();
    for (a = __atomic_load_n(&added, __ATOMIC_ACQUIRE); --n > i; a = a->next)
        ;
    return a->op;
}

const char *pst_op_family(const struct pst_op *op)
{
    const unsigned i = index_of(op);
    const struct pst_op_added *a = i < N_OPS ? NULL : added_of(op);

    return i < N_OPS ? registry.families[i] : a != NULL ? a->family : "";
}

bool pst_registry_alias(unsigned i, const char **ret_name, const char **ret_row)
{
    if (i >= PST_COUNT(aliases))
        return false;
    *ret_name = aliases[i].name;
    *ret_row = aliases[i].row;
    return true;
}

const struct pst_schema *pst_op_schema(const struct pst_op *op)
{
    const unsigned i = index_of(op);
    const struct pst_op_added *a = i < N_OPS ? NULL : added_of(op);

    return i < N_OPS ? &registry.schemas[i] : a != NULL ? a->schema : NULL;
}

const struct pst_op *pst_op_find(const char *name)
{
    const struct pst_op_added *a;
    const struct pst_op *op;

    if (!registry.ready)
        return NULL;
    op = pst_map_get(&registry.names, name);
    a = op == NULL ? added_named(name) : NULL;
    return a != NULL ? a->op : op;
}

bool pst_op_keeps_origin(const struct pst_op *op)
{
    return (op->flags & PST_OP_ORIGIN) != 0;
}

bool pst_op_is_view(const struct pst_op *op)
{
    return (op->flags & PST_OP_VIEW) != 0;
}

bool pst_op_has_effect(const struct pst_op *op)
{
    return (op->flags & (PST_OP_EFFECT | PST_OP_MARKER)) != 0;
}

bool pst_op_runs_for_effect(const struct pst_op *op)
{
    return (op->flags & PST_OP_EFFECT) != 0 && pst_op_runs(op);
}

/* --- inference ---------------------------------------------------------- */

/* Gives a view without elements offset 0 if it would begin outside of its
 * storage: PyTorch allows that, but offsets must be valid. */
static void clear_empty_offset(struct pst_infer *c, unsigned k)
{
    const struct pst_value *alias = c->alias_of[k];
    int64_t first;

    if (pst_meta_numel(&c->out[k]) == 0 &&
        (PST_ADD(pst_view_offset(alias, c->out[k].dtype, 0), c->offset[k],
                 &first) ||
         first < 0 || first > INT32_MAX))
        c->offset[k] = 0;
}

/* Checks that a view is inside its storage. */
static enum pst_status check_alias(const struct pst_infer *c, unsigned k)
{
    const struct pst_value *alias = c->alias_of[k];
    const struct pst_value *base = alias->base != NULL ? alias->base : alias;
    const struct pst_meta *view = &c->out[k];
    const size_t size = pst_dtype_size(view->dtype);
    int64_t first, last;

    if (PST_MUL(alias->offset, (int64_t)pst_dtype_size(alias->meta.dtype),
                &first) ||
        first % (int64_t)size != 0)
        return pst_diag_set(c->diag, PST_E_OP_SHAPE,
                            "%s: \"%s\" begins at element %lld of its storage, "
                            "where no %s can begin",
                            c->schema->name, alias->name,
                            (long long)alias->offset,
                            pst_dtype_name(view->dtype));
    if (pst_meta_numel(view) == 0)
        return PST_OK;
    first = pst_view_offset(alias, view->dtype, 0);
    if (PST_ADD(first, c->offset[k], &first) || first < 0 ||
        PST_ADD(first, (int64_t)(pst_meta_span(view) / size), &last) ||
        (uint64_t)last > pst_meta_span(&base->meta) / size)
        return pst_diag_set(c->diag, PST_E_OP_SHAPE,
                            "%s: the view reaches outside of the storage of "
                            "\"%s\"",
                            c->schema->name, base->name);
    return PST_OK;
}

/* Clears only the results that infer may write: clearing all would take a sixth
 * of the time of a split. */
static void clear_results(struct pst_infer *c)
{
    const unsigned n = c->schema->list_return
                           ? PST_MAX_OUTS
                           : PST_MAX(c->schema->n_returns, 1u);

    memset(c->out, 0, n * sizeof(c->out[0]));
    memset(c->alias_of, 0, n * sizeof(struct pst_value *));
    memset(c->offset, 0, n * sizeof(c->offset[0]));
    c->n_outs = c->schema->n_returns;
}

enum pst_status pst_op_infer(const struct pst_op *op, struct pst_infer *c)
{
    enum pst_status status;

    if (op->infer == NULL) /* for instance from a damaged plan */
        return pst_diag_set(c->diag, PST_E_OP_NOT_SUPPORTED,
                            "%s is a composition of other operators and no "
                            "node of a graph",
                            c->schema->name);
    clear_results(c);
    status = op->infer(c);
    if (status != PST_OK)
        return status;
    if (c->n_outs > PST_MAX_OUTS ||
        (!c->schema->list_return && c->n_outs != c->schema->n_returns))
        return pst_diag_set(c->diag, PST_E_OP_TOO_MANY,
                            "%s: %u results are too many", c->schema->name,
                            c->n_outs);
    for (unsigned k = 0; k < c->n_outs; k++) {
        if (c->alias_of[k] == NULL && c->out[k].rank <= PST_MAX_RANK)
            c->out[k] =
                pst_meta_make(c->out[k].dtype, c->out[k].rank, c->out[k].size);
        status = pst_meta_check(&c->out[k], c->diag);
        if (status != PST_OK) {
            pst_diag_prefix(c->diag, "%s", c->schema->name);
            return status;
        }
        if (c->alias_of[k] != NULL)
            status = check_alias(c, k);
        if (c->alias_of[k] != NULL && status == PST_OK)
            clear_empty_offset(c, k);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* --- kernels ------------------------------------------------------------ */

bool pst_op_runs(const struct pst_op *op)
{
    const unsigned i = index_of(op);

    return i < N_OPS ? orders[i] >= 0 : added_of(op) != NULL;
}

/* Returns the device's own kernels of an operator; {0} if it has none. Devices
 * that share cpu's table also have the kernels of rows added at run time. */
static struct pst_kernels own_kernels(const struct pst_device *device,
                                      const struct pst_op *op)
{
    const unsigned i = index_of(op);
    const struct pst_op_added *a = i < N_OPS ? NULL : added_of(op);

    if (a != NULL && device->kernels == pst_device_cpu.kernels)
        return a->kernels;
    if (i < N_OPS && orders[i] >= 0 && device->kernels[orders[i]] != NULL)
        return *device->kernels[orders[i]];
    return (struct pst_kernels){0};
}

struct pst_kernels pst_op_kernels(const struct pst_device *device,
                                  const struct pst_op *op)
{
    struct pst_kernels found = {0};

    for (; device != NULL && found.n == 0; device = device->fallback)
        found = own_kernels(device, op);
    return found;
}

const struct pst_kernel *pst_op_reference(const struct pst_op *op)
{
    const struct pst_kernels kernels = pst_op_kernels(&pst_device_cpu, op);

    return kernels.n > 0 ? &kernels.at[kernels.n - 1] : NULL;
}

static void without_data(unsigned n, const struct pst_operand *from,
                         struct pst_operand *to)
{
    for (unsigned i = 0; i < n; i++)
        to[i] = (struct pst_operand){.meta = from[i].meta};
}

/* Calls kernel->supports without the addresses of data: the choice must be the
 * same before data exists and afterwards. */
static bool supports(const struct pst_kernel *kernel,
                     const struct pst_call *call)
{
    PST_UNINIT struct pst_operand in[PST_MAX_OPERANDS];
    PST_UNINIT struct pst_operand out[PST_MAX_OPERANDS];
    struct pst_call bare = *call;

    if (kernel->supports == NULL)
        return true;
    without_data(call->n_in, call->in, in);
    without_data(call->n_out, call->out, out);
    bare.in = in;
    bare.out = out;
    return kernel->supports(&bare);
}

bool pst_kernel_fits(const struct pst_kernel *kernel,
                     const struct pst_call *call, enum pst_isa isa)
{
    enum pst_dtype dtype;

    if (kernel->isa > isa)
        return false;
    if (call->n_in > 0 || call->n_out > 0) {
        dtype =
            call->n_in > 0 ? call->in[0].meta->dtype : call->out[0].meta->dtype;
        if ((kernel->dtypes & 1u << dtype) == 0)
            return false;
    }
    return supports(kernel, call);
}

static bool is_16_bit(const struct pst_call *call)
{
    enum pst_dtype dtype;

    if (call->n_in == 0)
        return false;
    dtype = call->in[0].meta->dtype;
    return dtype == PST_BF16 || dtype == PST_F16;
}

/* Selects a kernel as pst_kernel_find does, without the device's fallback. */
static const struct pst_kernel *find_kernel(const struct pst_device *device,
                                            const struct pst_kernels kernels,
                                            struct pst_call *call,
                                            enum pst_isa isa,
                                            const char *forced)
{
    const struct pst_kernel *best = NULL;

    for (unsigned i = 0; i < kernels.n; i++) {
        const struct pst_kernel *kernel = &kernels.at[i];

        if (!pst_kernel_fits(kernel, call, isa))
            continue;
        if (device->adapt != NULL && forced == NULL && i + 1 == kernels.n &&
            (kernel->dtypes & PST_D_FLOAT) != 0 && is_16_bit(call)) {
            best = device->adapt(&kernels, call, isa);
            return best != NULL ? best : kernel;
        }
        if (forced == NULL || strcmp(kernel->name, forced) == 0)
            return kernel;
        if (best == NULL)
            best = kernel;
    }
    return best;
}

const struct pst_kernel *pst_kernel_find(const struct pst_device *device,
                                         const struct pst_op *op,
                                         struct pst_call *call,
                                         enum pst_isa isa, const char *forced)
{
    const struct pst_kernel *found = NULL;

    for (; device != NULL && found == NULL; device = device->fallback)
        found = find_kernel(device, own_kernels(device, op), call, isa, forced);
    if (found != NULL && found->owner != NULL)
        call->owner = found->owner;
    return found;
}

const struct pst_kernel *pst_kernel_choose(const struct pst_op *op,
                                           struct pst_call *call,
                                           enum pst_isa isa, const char *forced)
{
    return pst_kernel_find(&pst_device_cpu, op, call, isa, forced);
}

double pst_node_flops(const struct pst_node *node)
{
    if (node->op->flops != NULL)
        return node->op->flops(node);
    if (!pst_op_runs(node->op) || node->n_outs == 0 ||
        node->outs[0]->base != NULL)
        return 0.0;
    return (double)pst_meta_numel(&node->outs[0]->meta);
}
