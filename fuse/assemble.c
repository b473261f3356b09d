/* assemble.c - gather whole files into memory when they are opened */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/assemble.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "fuse/gather.h"

/* For smaller files, a few pages of cache are cheaper than a backing file. */
#define SMALLEST (UINT64_C(16) << 10)
/* Gathering up to this size is not noticeable, whatever is read afterwards. */
#define SMALL     (UINT64_C(8) << 20)
#define HUGE_PAGE (UINT64_C(2) << 20)
enum {
	BUCKETS = 4096,
	SEEN = 4096,   /* files remembered as opened */
	READERS = 256, /* processes that read files completely */
	CREDIT = 16,   /* files gathered after one was read completely */
	NEAR = 8, /* nodes in which the next file is looked for: directories and
		   * small files are between */
	FORGIVE_MS = 60000, /* time until a failed gather is repeated */
	WAIT_MS = 100, /* interval at which a waiter checks for cancellation */
};

/* A file that is open or in memory. */
struct entry {
	uint64_t node, bytes;
	struct entry *next;          /* in its bucket */
	struct entry *older, *newer; /* LRU list, when only in memory */
	unsigned opens,
	    demand;        /* opens: through the kernel; demand: through us */
	unsigned deciding; /* opens being decided, and a gather ahead of them */
	int id;            /* 0: not in memory */
	unsigned opened;   /* times since it is in memory */
	bool gathering;
	bool scan; /* gathered for a process that reads file after file */
};

/* Observations about a node or a process, in hash tables where newer ones
 * replace older ones: forgetting only costs speed. */
struct seen {
	uint64_t node;
	int64_t failed; /* ofs_clock_ms; 0: never */
};
struct reader {
	pid_t pid;
	unsigned credit;
	uint64_t node, next; /* opened last; expected next, 0: unknown */
	bool astray;         /* it opened another one */
};
/* What is gathered, and how. */
struct work {
	struct optimfs_file *file;
	uint64_t node, size;
	void *scratch;
	bool (*cancelled)(void *ctx);
	void *ctx;
};

struct ofs_assemble {
	struct ofs_assemble_config config;
	struct ofs_passthrough *pt;
	int dir;
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t gathered;
	struct entry *bucket[BUCKETS];
	struct entry *oldest, *newest;
	uint64_t used;
	struct seen seen[SEEN];
	struct reader reader[READERS];
	struct ofs_assemble_stats stats;
};

struct ofs_assemble *ofs_assemble_new(const struct ofs_assemble_config *config,
    struct ofs_passthrough *pt, struct optimfs_error *err)
{
	struct ofs_assemble *a = calloc(1, sizeof(*a));

	if (a == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	a->config = *config;
	a->pt = pt;
	/* the budget is enforced by counting; the limit is a backstop */
	a->dir = ofs_gather_dir(config->budget + 4 * HUGE_PAGE, err);
	if (a->dir == -1) {
		free(a);
		return NULL;
	}
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->gathered, NULL);
	return a;
}

void ofs_assemble_free(struct ofs_assemble *a)
{
	if (a == NULL)
		return;
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct entry *e = a->bucket[i], *next; e != NULL;
		     e = next) {
			next = e->next;
			free(e);
		}
	close(a->dir);
	pthread_cond_destroy(&a->gathered);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

int ofs_assemble_dir(const struct ofs_assemble *a)
{
	return a == NULL ? -1 : a->dir;
}

static uint64_t mix(uint64_t x)
{
	return (x * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
}

static struct entry **slot(struct ofs_assemble *a, uint64_t node)
{
	struct entry **e = &a->bucket[mix(node) % BUCKETS];

	while (*e != NULL && (*e)->node != node)
		e = &(*e)->next;
	return e;
}

static struct entry *get(struct ofs_assemble *a, uint64_t node)
{
	struct entry **e = slot(a, node);

	if (*e == NULL) {
		*e = calloc(1, sizeof(**e));
		if (*e != NULL)
			(*e)->node = node;
	}
	return *e;
}

/* Did such a process open it, and nobody since? It is unlikely to be read
 * again. */
static bool was_scanned(const struct entry *e)
{
	return e->scan && e->opened == 1;
}

static void lru_add(struct ofs_assemble *a, struct entry *e)
{
	if (was_scanned(e)) {
		e->older = NULL;
		e->newer = a->oldest;
		*(a->oldest != NULL ? &a->oldest->older : &a->newest) = e;
		a->oldest = e;
		return;
	}
	e->older = a->newest;
	e->newer = NULL;
	*(a->newest != NULL ? &a->newest->newer : &a->oldest) = e;
	a->newest = e;
}

static void lru_remove(struct ofs_assemble *a, struct entry *e)
{
	*(e->older != NULL ? &e->older->newer : &a->oldest) = e->newer;
	*(e->newer != NULL ? &e->newer->older : &a->newest) = e->older;
}

/* Frees e if it is unused. */
static void put(struct ofs_assemble *a, struct entry *e)
{
	struct entry **at;

	if (e->opens != 0 || e->demand != 0 || e->deciding != 0 || e->id != 0)
		return;
	at = slot(a, e->node);
	*at = e->next;
	free(e);
}

static void evict(struct ofs_assemble *a, struct entry *e)
{
	lru_remove(a, e);
	ofs_passthrough_unregister(a->pt, e->id);
	e->id = 0;
	a->used -= e->bytes;
	a->stats.evicted++;
	put(a, e);
}

/* What a process has read makes room for what it reads next, which then gets
 * pages that were used just now: they are there, even if a host takes back the
 * free memory of its guests. */
static void drop_scanned(struct ofs_assemble *a)
{
	while (a->oldest != NULL && was_scanned(a->oldest))
		evict(a, a->oldest);
}

static bool reserve(struct ofs_assemble *a, uint64_t bytes)
{
	if (bytes > a->config.budget)
		return false;
	while (a->used + bytes > a->config.budget && a->oldest != NULL)
		evict(a, a->oldest);
	if (a->used + bytes > a->config.budget)
		return false;
	a->used += bytes;
	return true;
}

static uint64_t charge(uint64_t size)
{
	uint64_t unit = size < HUGE_PAGE ? 4096 : HUGE_PAGE;

	return (size + unit - 1) / unit * unit;
}

/* Depends on the file only: files that are not eligible need no entry. */
static bool eligible(const struct ofs_assemble *a, uint64_t size)
{
	return a->config.policy != OFS_ASSEMBLE_OFF && size >= SMALLEST &&
	    size <= a->config.max && charge(size) <= a->config.budget &&
	    ofs_passthrough_available(a->pt);
}

static struct reader *reader(struct ofs_assemble *a, pid_t pid)
{
	return &a->reader[mix((uint64_t)pid) % READERS];
}

static bool spend(struct reader *r, pid_t pid)
{
	if (r->pid != pid || r->credit == 0)
		return false;
	r->credit--;
	return true;
}

static bool is_seen(const struct ofs_assemble *a, uint64_t node)
{
	return a->seen[mix(node) % SEEN].node == node;
}

static bool failed_lately(const struct ofs_assemble *a, uint64_t node)
{
	const struct seen *s = &a->seen[mix(node) % SEEN];

	return is_seen(a, node) && s->failed != 0 &&
	    ofs_clock_ms() - s->failed < FORGIVE_MS;
}

/* Should this file, now opened and not in memory, be gathered? */
static bool wanted(struct ofs_assemble *a, struct entry *e,
    const struct ofs_assemble_open *o)
{
	struct seen *s = &a->seen[mix(o->node) % SEEN];
	bool again = is_seen(a, o->node);

	if (failed_lately(a, o->node))
		return false;
	*s = (struct seen){ .node = o->node };
	e->scan = false;
	if (a->config.policy == OFS_ASSEMBLE_ALWAYS || o->size <= SMALL ||
	    again)
		return true;
	e->scan = spend(reader(a, o->pid), o->pid);
	return e->scan;
}

static bool gone(void *ctx)
{
	return ofs_pending_gone(ctx);
}

/* Without the lock. */
static int gather(struct ofs_assemble *a, const struct work *w,
    struct optimfs_error *err)
{
	struct ofs_gather g = {
		.file = w->file,
		.size = w->size,
		.threads = a->config.threads,
		.scratch = w->scratch,
		.cancelled = w->cancelled,
		.ctx = w->ctx,
	};
	int fd = ofs_gather_file(a->dir, &g, err);
	int id;

	if (fd == -1)
		return -1;
	id = ofs_passthrough_register(a->pt, fd, err);
	close(fd);
	return id;
}

/* Gathers the file; e->id is set on success. */
static void fetch(struct ofs_assemble *a, struct entry *e, const struct work *w)
{
	struct optimfs_error err;
	int id;

	e->bytes = charge(w->size);
	e->opened = 0;
	if (e->scan)
		drop_scanned(a);
	if (!reserve(a, e->bytes)) {
		a->stats.refused++;
		return;
	}
	e->gathering = true;
	pthread_mutex_unlock(&a->lock);
	id = gather(a, w, &err);
	pthread_mutex_lock(&a->lock);
	e->gathering = false;
	pthread_cond_broadcast(&a->gathered);
	if (id > 0) {
		e->id = id;
		a->stats.gathered++;
		a->stats.gathered_bytes += w->size;
		return;
	}
	a->used -= e->bytes;
	if (err.code == ECANCELED)
		return;
	a->stats.failed++;
	a->seen[mix(w->node) % SEEN] =
	    (struct seen){ .node = w->node, .failed = ofs_clock_ms() };
}

/* Waits while another open gathers the file; false if ours was cancelled. */
static bool wait_gathered(struct ofs_assemble *a, struct entry *e,
    struct ofs_pending *pending)
{
	while (e->gathering) {
		ofs_clock_wait(&a->gathered, &a->lock,
		    WAIT_MS * INT64_C(1000000));
		if (ofs_pending_gone(pending))
			return false;
	}
	return true;
}

/* Decides how this open reads: sets o->id. The lock is held. */
static void decide(struct ofs_assemble *a, struct entry *e,
    struct ofs_assemble_open *o, const struct work *w,
    struct ofs_pending *pending)
{
	if (!wait_gathered(a, e, pending) || e->demand != 0)
		return;
	if (e->id != 0) {
		if (e->opens == 0)
			lru_remove(a, e);
		a->stats.hits++;
		a->seen[mix(o->node) % SEEN] = (struct seen){ .node = o->node };
	} else if (wanted(a, e, o)) {
		fetch(a, e, w);
	}
	o->id = e->id;
	e->opened++;
}

/* Does the process open one large file after the other? Not if it left out one
 * that was expected. */
static bool is_onward(struct ofs_assemble *a, const struct ofs_assemble_open *o)
{
	struct reader *r = reader(a, o->pid);
	uint64_t last;

	if (o->size <= SMALL)
		return false;
	if (r->pid != o->pid) {
		*r = (struct reader){ .pid = o->pid, .node = o->node };
		return false;
	}
	last = r->node;
	r->node = o->node;
	if (r->next != 0 && r->next != o->node)
		r->astray = true;
	return !r->astray && o->node > last && o->node - last <= NEAR;
}

int ofs_assemble_open(struct ofs_assemble *a, struct ofs_assemble_open *o,
    struct optimfs_file *file, void *scratch, struct ofs_pending *pending,
    struct optimfs_error *err)
{
	const struct work w = { file, o->node, o->size, scratch, gone,
		pending };
	struct entry *e;

	o->id = 0;
	o->onward = o->counted = false;
	if (a == NULL || !eligible(a, o->size))
		return 0;
	pthread_mutex_lock(&a->lock);
	e = get(a, o->node);
	if (e == NULL) {
		pthread_mutex_unlock(&a->lock);
		return ofs_no_memory(err);
	}
	e->deciding++;
	decide(a, e, o, &w, pending);
	e->deciding--;
	if (o->id != 0)
		e->opens++;
	else
		e->demand++;
	o->onward = is_onward(a, o);
	o->counted = true;
	pthread_mutex_unlock(&a->lock);
	return 0;
}

/* Gathers a file that is not open, and keeps it, if an open of it would gather
 * it, too. */
static void gather_ahead(struct ofs_assemble *a, pid_t pid,
    const struct work *w)
{
	struct reader *r = reader(a, pid);
	struct entry *e;

	pthread_mutex_lock(&a->lock);
	if (r->pid == pid)
		r->next = w->node;
	e = get(a, w->node);
	if (e != NULL && !e->gathering && e->id == 0 && e->demand == 0 &&
	    !failed_lately(a, w->node) &&
	    (is_seen(a, w->node) || spend(r, pid))) {
		e->scan = !is_seen(a, w->node);
		e->deciding++;
		fetch(a, e, w);
		e->deciding--;
		if (e->id != 0)
			lru_add(a, e);
	}
	if (e != NULL)
		put(a, e);
	pthread_mutex_unlock(&a->lock);
}

void ofs_assemble_ahead(struct ofs_assemble *a,
    const struct ofs_assemble_open *o, const struct ofs_assemble_next *next,
    void *scratch)
{
	struct work w = { .scratch = scratch,
		.cancelled = next->cancelled,
		.ctx = next->ctx };

	for (uint64_t i = 1; i <= NEAR && w.file == NULL; i++) {
		w.node = o->node + i;
		w.file = next->open(next->ctx, w.node, SMALL);
	}
	if (w.file == NULL)
		return;
	w.size = optimfs_file_size(w.file);
	if (eligible(a, w.size))
		gather_ahead(a, o->pid, &w);
	optimfs_file_close(w.file);
}

/* A process that reads a file completely will read the next one completely. */
static void learn(struct ofs_assemble *a, const struct ofs_assemble_open *o,
    uint64_t served)
{
	struct reader *r = reader(a, o->pid);

	if (o->size <= SMALL || served == 0)
		return;
	if (served >= o->size - o->size / 8)
		*r = (struct reader){
			.pid = o->pid, .credit = CREDIT, .node = o->node
		};
	else if (r->pid == o->pid)
		r->credit = 0;
}

void ofs_assemble_release(struct ofs_assemble *a, struct ofs_assemble_open *o,
    uint64_t served)
{
	struct entry *e;

	if (!o->counted)
		return;
	pthread_mutex_lock(&a->lock);
	e = *slot(a, o->node);
	if (o->id == 0) {
		e->demand--;
		learn(a, o, served);
	} else if (--e->opens == 0) {
		lru_add(a, e);
	}
	put(a, e);
	pthread_mutex_unlock(&a->lock);
}

void ofs_assemble_stats(struct ofs_assemble *a, struct ofs_assemble_stats *s)
{
	*s = (struct ofs_assemble_stats){ 0 };
	if (a == NULL)
		return;
	pthread_mutex_lock(&a->lock);
	*s = a->stats;
	s->memory = a->used;
	pthread_mutex_unlock(&a->lock);
}
