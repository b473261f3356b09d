/* fakecuda.c - the calls of the CUDA driver that reading into a GPU makes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A shared object that replaces libcuda.so.1. A copy is made as late as it may
 * be, when its event or its stream is waited for, so that a buffer that is
 * filled again too early gives wrong bytes. The tests give addresses of a device
 * with the bit ON_GPU set, so that the processor cannot use them by mistake.
 *
 * $FAKECUDA, read by cuInit, is a list of words separated by commas:
 *   devices=N    the number of devices (1)
 *   copies=N     copies after the first N fail
 *   pinned=N     pinned buffers after the first N fail */
#define ON_GPU ((uint64_t)1 << 62)

enum {
	OK = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	LAUNCH_FAILED = 719,
};

struct copy {
	void *to;
	const void *from;
	size_t n;
	struct copy *next;
};

struct stream {
	struct copy *first, **last;
};

struct event {
	struct stream *stream; /* NULL: never recorded */
	struct copy *upto;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int devices, copies, pinned;
static char context;
static _Thread_local int pushed;

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
	const char *p = getenv("FAKECUDA");

	(void)flags;
	pthread_mutex_lock(&lock);
	devices = 1;
	copies = pinned = 1 << 30;
	while (p != NULL && *p != '\0') {
		sscanf(p, "devices=%d", &devices);
		sscanf(p, "copies=%d", &copies);
		sscanf(p, "pinned=%d", &pinned);
		p += strcspn(p, ",");
		p += *p == ',';
	}
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuDeviceGet(int *device, int number);
int cuDeviceGet(int *device, int number)
{
	*device = number;
	return number >= 0 && number < devices ? OK : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **c, int device);
int cuDevicePrimaryCtxRetain(void **c, int device)
{
	(void)device;
	*c = &context;
	return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	return OK;
}

int cuCtxPushCurrent_v2(void *c);
int cuCtxPushCurrent_v2(void *c)
{
	pushed++;
	return c == &context ? OK : INVALID_CONTEXT;
}

int cuCtxPopCurrent_v2(void **c);
int cuCtxPopCurrent_v2(void **c)
{
	*c = &context;
	return pushed-- > 0 ? OK : INVALID_CONTEXT;
}

/* One allocation or copy that may fail. */
static bool may(int *left)
{
	bool yes;

	pthread_mutex_lock(&lock);
	yes = *left > 0;
	*left -= yes;
	pthread_mutex_unlock(&lock);
	return yes;
}

int cuMemHostAlloc(void **p, size_t size, unsigned flags);
int cuMemHostAlloc(void **p, size_t size, unsigned flags)
{
	(void)flags;
	if (pushed == 0)
		return INVALID_CONTEXT;
	*p = may(&pinned) ? malloc(size) : NULL;
	return *p != NULL ? OK : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *p);
int cuMemFreeHost(void *p)
{
	free(p);
	return OK;
}

int cuStreamCreate(void **s, unsigned flags);
int cuStreamCreate(void **s, unsigned flags)
{
	struct stream *made = calloc(1, sizeof(*made));

	(void)flags;
	*s = made;
	if (made == NULL)
		return OUT_OF_MEMORY;
	made->last = &made->first;
	return pushed > 0 ? OK : INVALID_CONTEXT;
}

/* Up to one copy, or all. */
static void make_copies(struct stream *s, const struct copy *upto)
{
	bool go_on = true;

	while (go_on && s->first != NULL) {
		struct copy *c = s->first;

		go_on = c != upto;
		memcpy(c->to, c->from, c->n);
		s->first = c->next;
		if (s->first == NULL)
			s->last = &s->first;
		free(c);
	}
}

int cuStreamSynchronize(void *s);
int cuStreamSynchronize(void *s)
{
	if (s != NULL)
		make_copies(s, NULL);
	return pushed > 0 ? OK : INVALID_CONTEXT;
}

int cuStreamDestroy_v2(void *s);
int cuStreamDestroy_v2(void *s)
{
	make_copies(s, NULL);
	free(s);
	return OK;
}

int cuEventCreate(void **e, unsigned flags);
int cuEventCreate(void **e, unsigned flags)
{
	(void)flags;
	*e = calloc(1, sizeof(struct event));
	return *e != NULL ? OK : OUT_OF_MEMORY;
}

int cuEventRecord(struct event *e, struct stream *s);
int cuEventRecord(struct event *e, struct stream *s)
{
	e->stream = s;
	e->upto = NULL;
	for (struct copy *c = s->first; c != NULL; c = c->next)
		e->upto = c;
	return OK;
}

int cuEventSynchronize(struct event *e);
int cuEventSynchronize(struct event *e)
{
	bool there = false;

	for (struct copy *c = e->stream == NULL ? NULL : e->stream->first;
	     c != NULL; c = c->next)
		there |= c == e->upto;
	if (there)
		make_copies(e->stream, e->upto);
	return OK;
}

int cuEventDestroy_v2(void *e);
int cuEventDestroy_v2(void *e)
{
	free(e);
	return OK;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n,
    struct stream *s);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n,
    struct stream *s)
{
	struct copy *c;

	if ((to & ON_GPU) == 0 || pushed == 0)
		return INVALID_VALUE;
	if (!may(&copies))
		return LAUNCH_FAILED;
	c = malloc(sizeof(*c));
	if (c == NULL)
		return OUT_OF_MEMORY;
	*c = (struct copy){ (void *)(uintptr_t)(to & ~ON_GPU), from, n, NULL };
	*s->last = c;
	s->last = &c->next;
	return OK;
}

int cuGetErrorString(int code, const char **text);
int cuGetErrorString(int code, const char **text)
{
	*text = code == LAUNCH_FAILED ? "unspecified launch failure"
	    : code == OUT_OF_MEMORY   ? "out of memory"
				      : "invalid device ordinal";
	return OK;
}
