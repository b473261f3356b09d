/* device.c - memory of a CUDA device, which gets bytes from pinned buffers */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "api/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/memory.h"

/* The calls of the CUDA Driver API that are used, with the names that its
 * library exports: those of cuda.h are macros for them. */
struct driver {
	int (*init)(unsigned flags);
	int (*get)(int *device, int number);
	int (*retain)(void **context, int device);
	int (*release)(int device);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*alloc)(void **p, size_t size, unsigned flags);
	int (*free)(void *p);
	int (*stream)(void **stream, unsigned flags);
	int (*stream_wait)(void *stream);
	int (*stream_end)(void *stream);
	int (*event)(void **event, unsigned flags);
	int (*event_record)(void *event, void *stream);
	int (*event_wait)(void *event);
	int (*event_end)(void *event);
	int (*copy)(uint64_t to, const void *from, size_t n, void *stream);
	int (*text)(int code, const char **text);
};

/* of enum cudaError_enum and the flags of cuda.h */
enum {
	OUT_OF_MEMORY = 2,
	STREAM_NON_BLOCKING = 1,
	EVENT_DISABLE_TIMING = 2,
};

struct ofs_device {
	struct driver cu;
	int device;
	void *context;
};

struct ofs_pinned {
	struct ofs_device *device;
	void *stream;
	struct {
		void *bytes, *event;
	} buffer[OFS_PINNED_BUFFERS];
	unsigned turn;
};

#define CALL(member, name)              \
 {                                      \
  offsetof(struct driver, member), name \
 }

static int load(struct driver *cu, struct optimfs_error *err)
{
	static const struct {
		size_t at;
		const char *name;
	} call[] = {
		CALL(init, "cuInit"),
		CALL(get, "cuDeviceGet"),
		CALL(retain, "cuDevicePrimaryCtxRetain"),
		CALL(release, "cuDevicePrimaryCtxRelease_v2"),
		CALL(push, "cuCtxPushCurrent_v2"),
		CALL(pop, "cuCtxPopCurrent_v2"),
		CALL(alloc, "cuMemHostAlloc"),
		CALL(free, "cuMemFreeHost"),
		CALL(stream, "cuStreamCreate"),
		CALL(stream_wait, "cuStreamSynchronize"),
		CALL(stream_end, "cuStreamDestroy_v2"),
		CALL(event, "cuEventCreate"),
		CALL(event_record, "cuEventRecord"),
		CALL(event_wait, "cuEventSynchronize"),
		CALL(event_end, "cuEventDestroy_v2"),
		CALL(copy, "cuMemcpyHtoDAsync_v2"),
		CALL(text, "cuGetErrorString"),
	};
	/* It stays loaded: the process may use it itself. */
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (library == NULL)
		return optimfs_fail(err, ENODEV,
		    "OFS904 the GPU: there is no driver of CUDA here: %s",
		    dlerror());
	for (size_t i = 0; i < sizeof(call) / sizeof(call[0]); i++) {
		void **to = (void **)((char *)cu + call[i].at);

		*to = dlsym(library, call[i].name);
		if (*to == NULL)
			return optimfs_fail(err, ENODEV,
			    "OFS904 the GPU: its driver is too old: %s",
			    dlerror());
	}
	return 0;
}

static int fail(const struct driver *cu, int code, const char *what,
    struct optimfs_error *err)
{
	const char *text = NULL;

	if (cu->text(code, &text) != 0 || text == NULL)
		text = "unknown error";
	return optimfs_fail(err, code == OUT_OF_MEMORY ? ENOMEM : EIO,
	    "OFS904 the GPU: %s: %s (CUDA error %d)", what, text, code);
}

static int open_number(struct ofs_device *d, int number, void *stream,
    struct optimfs_error *err)
{
	const struct driver *cu = &d->cu;
	int code = cu->init(0);

	if (code == 0)
		code = cu->get(&d->device, number);
	if (code != 0) {
		fail(cu, code, "it cannot be opened", err);
		err->code = ENODEV;
		return -1;
	}
	code = cu->retain(&d->context, d->device);
	if (code != 0)
		return fail(cu, code, "its context", err);
	code = cu->push(d->context);
	if (code == 0) {
		void *same;

		code = cu->stream_wait(stream);
		cu->pop(&same);
	}
	if (code == 0)
		return 0;
	cu->release(d->device);
	return fail(cu, code, "waiting for its work", err);
}

struct ofs_device *ofs_device_open(int number, void *stream,
    struct optimfs_error *err)
{
	struct ofs_device *d = ofs_alloc(1, sizeof(*d), err);

	if (d == NULL)
		return NULL;
	if (load(&d->cu, err) == 0 && open_number(d, number, stream, err) == 0)
		return d;
	free(d);
	return NULL;
}

void ofs_device_close(struct ofs_device *d)
{
	if (d == NULL)
		return;
	d->cu.release(d->device);
	free(d);
}

static int make(struct ofs_pinned *pinned, size_t size)
{
	const struct driver *cu = &pinned->device->cu;
	int code = cu->stream(&pinned->stream, STREAM_NON_BLOCKING);

	for (int i = 0; i < OFS_PINNED_BUFFERS && code == 0; i++) {
		code = cu->alloc(&pinned->buffer[i].bytes, size, 0);
		if (code == 0)
			code = cu->event(&pinned->buffer[i].event,
			    EVENT_DISABLE_TIMING);
	}
	return code;
}

/* Its context is the current one of the calling thread until it is closed. */
struct ofs_pinned *ofs_pinned_open(struct ofs_device *d, size_t size,
    struct optimfs_error *err)
{
	struct ofs_pinned *pinned = ofs_alloc(1, sizeof(*pinned), err);
	int code;

	if (pinned == NULL)
		return NULL;
	pinned->device = d;
	code = d->cu.push(d->context);
	if (code != 0) {
		free(pinned);
		fail(&d->cu, code, "its context", err);
		return NULL;
	}
	code = make(pinned, size);
	if (code == 0)
		return pinned;
	ofs_pinned_close(pinned);
	fail(&d->cu, code, "pinned memory for it", err);
	return NULL;
}

void *ofs_pinned_buffer(struct ofs_pinned *pinned, struct optimfs_error *err)
{
	const struct driver *cu = &pinned->device->cu;
	/* an event that was never recorded has happened */
	int code = cu->event_wait(pinned->buffer[pinned->turn].event);

	if (code == 0)
		return pinned->buffer[pinned->turn].bytes;
	fail(cu, code, "copying to it", err);
	return NULL;
}

int ofs_pinned_send(struct ofs_pinned *pinned, void *to, size_t n,
    struct optimfs_error *err)
{
	const struct driver *cu = &pinned->device->cu;
	unsigned i = pinned->turn;
	int code = cu->copy((uint64_t)(uintptr_t)to, pinned->buffer[i].bytes, n,
	    pinned->stream);

	if (code == 0)
		code =
		    cu->event_record(pinned->buffer[i].event, pinned->stream);
	pinned->turn = (i + 1) % OFS_PINNED_BUFFERS;
	return code == 0 ? 0 : fail(cu, code, "copying to it", err);
}

int ofs_pinned_wait(struct ofs_pinned *pinned, struct optimfs_error *err)
{
	const struct driver *cu = &pinned->device->cu;
	int code = cu->stream_wait(pinned->stream);

	return code == 0 ? 0 : fail(cu, code, "copying to it", err);
}

void ofs_pinned_close(struct ofs_pinned *pinned)
{
	const struct driver *cu;
	void *same;

	if (pinned == NULL)
		return;
	cu = &pinned->device->cu;
	if (pinned->stream != NULL) {
		cu->stream_wait(pinned->stream);
		cu->stream_end(pinned->stream);
	}
	for (int i = 0; i < OFS_PINNED_BUFFERS; i++) {
		if (pinned->buffer[i].event != NULL)
			cu->event_end(pinned->buffer[i].event);
		if (pinned->buffer[i].bytes != NULL)
			cu->free(pinned->buffer[i].bytes);
	}
	cu->pop(&same);
	free(pinned);
}
