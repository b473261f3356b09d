/* mhd.h - the module with libmicrohttpd: optimfs-serve.so */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SERVE_MHD_H
#define OFS_SERVE_MHD_H

#include <microhttpd.h>

/* libmicrohttpd brings GnuTLS, and each program that is linked with that takes
 * 1.5 ms longer to start. So it is a module, which only a server loads: the
 * functions that are used (OFS_MHD_SYMBOL in listener.h). */
struct ofs_mhd {
	__typeof__(MHD_start_daemon) *start_daemon;
	__typeof__(MHD_stop_daemon) *stop_daemon;
	__typeof__(MHD_lookup_connection_value) *lookup_connection_value;
	__typeof__(MHD_basic_auth_get_username_password)
	    *basic_auth_get_username_password;
	__typeof__(MHD_create_response_from_buffer)
	    *create_response_from_buffer;
	__typeof__(MHD_create_response_from_callback)
	    *create_response_from_callback;
	__typeof__(MHD_create_response_from_fd_at_offset64)
	    *create_response_from_fd_at_offset64;
	__typeof__(MHD_add_response_header) *add_response_header;
	__typeof__(MHD_queue_response) *queue_response;
	__typeof__(MHD_destroy_response) *destroy_response;
};

#endif
