# One macro a dependency: X_CFLAGS, X_LIBS, HAVE_X as a define and as an
# Automake conditional, and optimfs_have_x for the summary.

# OPTIMFS_REPORT(name, NAME, what it is for)
AC_DEFUN([OPTIMFS_REPORT], [
AS_IF([test "x$optimfs_have_$1" != xno],
    [AC_DEFINE([HAVE_$2], [1], [Define to 1 if $3.])])
AM_CONDITIONAL([HAVE_$2], [test "x$optimfs_have_$1" != xno])
])

AC_DEFUN([OPTIMFS_ZLIB], [
PKG_CHECK_MODULES([ZLIB], [zlib])
])

# Only its CRC-32, which is ten times as fast as that of zlib 1.2.
AC_DEFUN([OPTIMFS_DEFLATE], [
AC_ARG_WITH([libdeflate],
    [AS_HELP_STRING([--with-libdeflate], [fast checksums @<:@check@:>@])],
    [], [with_libdeflate=check])
optimfs_have_deflate=no
AS_IF([test "x$with_libdeflate" != xno], [
    PKG_CHECK_MODULES([DEFLATE], [libdeflate],
        [optimfs_have_deflate=$($PKG_CONFIG --modversion libdeflate)],
        [AS_IF([test "x$with_libdeflate" = xyes],
            [AC_MSG_ERROR([--with-libdeflate: libdeflate not found (Debian: libdeflate-dev)])])])
])
OPTIMFS_REPORT([deflate], [DEFLATE], [checksums are made by libdeflate])
])

AC_DEFUN([OPTIMFS_XXHASH], [
PKG_CHECK_MODULES([XXHASH], [libxxhash >= 0.8])
optimfs_save_CFLAGS=$CFLAGS
optimfs_save_LIBS=$LIBS
CFLAGS="$XXHASH_CFLAGS $CFLAGS"
LIBS="$XXHASH_LIBS $LIBS"
# "make static" needs the functions in libxxhash.a, which Debian 12 leaves out.
AS_IF([test "x$enable_shared" = xno], [LIBS="-static $LIBS"])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <xxhash.h>
#include <xxh_x86dispatch.h>]], [[return (int)XXH3_64bits("", 0);]])],
    [AC_DEFINE([HAVE_XXH_X86DISPATCH], [1],
	[Define if libxxhash chooses by the CPU how to compute XXH3.])])
CFLAGS=$optimfs_save_CFLAGS
LIBS=$optimfs_save_LIBS
])

AC_DEFUN([OPTIMFS_FUSE], [
AC_ARG_WITH([fuse],
    [AS_HELP_STRING([--with-fuse], [mount with libfuse3 @<:@check@:>@])],
    [], [with_fuse=check])
optimfs_have_fuse=no
AS_IF([test "x$with_fuse" != xno], [
    PKG_CHECK_MODULES([FUSE], [fuse3 >= 3.10],
        [optimfs_have_fuse=$($PKG_CONFIG --modversion fuse3)],
        [AS_IF([test "x$with_fuse" = xyes],
            [AC_MSG_ERROR([--with-fuse: libfuse3 not found (Debian: libfuse3-dev)])])])
])
OPTIMFS_REPORT([fuse], [FUSE], [checkpoints can be mounted])
optimfs_have_custom_io=no
AS_IF([test "x$optimfs_have_fuse" != xno], [
    AC_CACHE_CHECK([for fuse_session_custom_io], [optimfs_cv_custom_io], [
        optimfs_cflags=$CFLAGS optimfs_libs=$LIBS
        CFLAGS="$CFLAGS $FUSE_CFLAGS" LIBS="$FUSE_LIBS $LIBS"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
]], [[
struct fuse_custom_io io = { 0 };
return fuse_session_custom_io(0, &io, 0);
]])], [optimfs_cv_custom_io=yes], [optimfs_cv_custom_io=no])
        CFLAGS=$optimfs_cflags LIBS=$optimfs_libs
    ])
    optimfs_have_custom_io=$optimfs_cv_custom_io
])
AS_IF([test "x$optimfs_have_custom_io" = xyes],
    [AC_DEFINE([HAVE_FUSE_SESSION_CUSTOM_IO], [1],
        [Define to 1 if libfuse lets its user read and write the device.])])
])

AC_DEFUN([OPTIMFS_ZSTD], [
AC_ARG_WITH([zstd],
    [AS_HELP_STRING([--with-zstd], [read zstd-compressed items @<:@check@:>@])],
    [], [with_zstd=check])
optimfs_have_zstd=no
AS_IF([test "x$with_zstd" != xno], [
    PKG_CHECK_MODULES([ZSTD], [libzstd >= 1.4],
        [optimfs_have_zstd=$($PKG_CONFIG --modversion libzstd)],
        [AS_IF([test "x$with_zstd" = xyes],
            [AC_MSG_ERROR([--with-zstd: libzstd not found (Debian: libzstd-dev)])])])
])
OPTIMFS_REPORT([zstd], [ZSTD], [zstd items can be read])
])

AC_DEFUN([OPTIMFS_MICROHTTPD], [
AC_ARG_WITH([microhttpd],
    [AS_HELP_STRING([--with-microhttpd], [optimfs serve @<:@check; not for a static program@:>@])],
    [], [with_microhttpd=check])
optimfs_have_microhttpd=no
# A static program would need those of GnuTLS, too.
AS_IF([test "x$with_microhttpd$enable_shared" = xcheckno], [with_microhttpd=no])
AS_IF([test "x$with_microhttpd" != xno], [
    PKG_CHECK_MODULES([MICROHTTPD], [libmicrohttpd >= 0.9.71],
        [optimfs_have_microhttpd=$($PKG_CONFIG --modversion libmicrohttpd)],
        [AS_IF([test "x$with_microhttpd" = xyes],
            [AC_MSG_ERROR([--with-microhttpd: libmicrohttpd not found (Debian: libmicrohttpd-dev)])])])
])
OPTIMFS_REPORT([microhttpd], [MICROHTTPD], [there is an HTTP server])
])

# mpicc is asked for its flags; CC stays CC.
AC_DEFUN([OPTIMFS_MPI], [
AC_ARG_WITH([mpi],
    [AS_HELP_STRING([--with-mpi], [gather across ranks with MPI @<:@check@:>@])],
    [], [with_mpi=check])
optimfs_have_mpi=no
AS_IF([test "x$with_mpi" != xno], [
    AC_CHECK_TOOLS([MPICC], [mpicc])
    AS_IF([test -n "$MPICC" && MPI_CFLAGS=$($MPICC --showme:compile 2>/dev/null) &&
           MPI_LIBS=$($MPICC --showme:link 2>/dev/null)],
        [optimfs_have_mpi=$($MPICC --showme:version 2>/dev/null | sed -n 's/.*\(Open MPI [[0-9.]]*\).*/\1/p')])
    AS_IF([test "x$with_mpi" = xyes && test "x$optimfs_have_mpi" = xno],
        [AC_MSG_ERROR([--with-mpi: no mpicc of Open MPI (Debian: libopenmpi-dev)])])
])
AC_SUBST([MPI_CFLAGS])
AC_SUBST([MPI_LIBS])
AS_IF([test "x$optimfs_have_mpi" != xno && test -n "$optimfs_have_mpi"],
    [AC_DEFINE_UNQUOTED([MPI_NAME], ["$optimfs_have_mpi"], [which MPI it is])])
OPTIMFS_REPORT([mpi], [MPI], [MPI is there])
])

# For the module that reads addresses.
AC_DEFUN([OPTIMFS_HTTP], [
AC_ARG_WITH([http],
    [AS_HELP_STRING([--with-http],
        [read checkpoints on servers, with libcurl @<:@check@:>@])],
    [], [with_http=check])
optimfs_have_http=no
AS_IF([test "x$with_http" != xno], [
    PKG_CHECK_MODULES([CURL], [libcurl >= 7.85 expat],
        [optimfs_have_http="libcurl $($PKG_CONFIG --modversion libcurl)"],
        [AS_IF([test "x$with_http" = xyes],
            [AC_MSG_ERROR([--with-http: libcurl 7.85 or later, or expat, not found (Debian: libcurl4-openssl-dev libexpat1-dev)])])])
])
OPTIMFS_REPORT([http], [HTTP], [checkpoints on servers can be read])
])

AC_DEFUN([OPTIMFS_CUDA], [
AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
        [gather through GPUs with the CUDA toolkit in DIR @<:@check@:>@])],
    [], [with_cuda=check])
optimfs_have_cuda=no
AS_CASE([$with_cuda],
    [no], [],
    [yes|check], [optimfs_cuda_dir=/usr/local/cuda],
    [optimfs_cuda_dir=$with_cuda])
AS_IF([test "x$with_cuda" != xno], [
    AC_PATH_PROG([NVCC], [nvcc], [], [$optimfs_cuda_dir/bin:$PATH])
    AS_IF([test -n "$NVCC" && test -f "$optimfs_cuda_dir/include/cuda_runtime.h"],
        [optimfs_have_cuda=$($NVCC --version | sed -n 's/.*release \([[0-9.]]*\).*/\1/p')
         CUDA_CFLAGS="-isystem $optimfs_cuda_dir/include"
         CUDA_LIBS="-L$optimfs_cuda_dir/lib64 -lcudart"
         # found where it was linked, unless the user says otherwise
         AS_CASE([$optimfs_cuda_dir], [/usr|/usr/local], [],
             [CUDA_LIBS="$CUDA_LIBS -Wl,--enable-new-dtags -Wl,-rpath,$optimfs_cuda_dir/lib64"])],
        [AS_IF([test "x$with_cuda" != xcheck],
            [AC_MSG_ERROR([--with-cuda: no nvcc and cuda_runtime.h in $optimfs_cuda_dir])])])
])
AC_SUBST([CUDA_MAJOR], [${optimfs_have_cuda%%.*}])
AC_ARG_VAR([NVCCFLAGS], [flags of nvcc, such as -arch=sm_90])
: ${NVCCFLAGS="-O2 -arch=all-major"}
AC_SUBST([CUDA_CFLAGS])
AC_SUBST([CUDA_LIBS])
OPTIMFS_REPORT([cuda], [CUDA], [the CUDA toolkit is there])
])

AC_DEFUN([OPTIMFS_NCCL], [
AC_ARG_WITH([nccl],
    [AS_HELP_STRING([--with-nccl@<:@=DIR@:>@],
        [gather through GPUs with the NCCL in DIR @<:@check@:>@])],
    [], [with_nccl=check])
optimfs_have_nccl=no
AS_IF([test "x$with_nccl" != xno && test "x$optimfs_have_cuda" != xno], [
    AS_CASE([$with_nccl],
        [yes|check], [optimfs_nccl_dirs="$optimfs_cuda_dir /usr /usr/local $(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[[0]])' 2>/dev/null)"],
        [optimfs_nccl_dirs=$with_nccl])
    for optimfs_dir in $optimfs_nccl_dirs; do
        AS_IF([test "x$optimfs_have_nccl" = xno && test -f "$optimfs_dir/include/nccl.h"],
            [optimfs_have_nccl=$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\)$/\2/p' "$optimfs_dir/include/nccl.h" | paste -sd.)
             NCCL_CFLAGS="-isystem $optimfs_dir/include"
             NCCL_LIBS="-L$optimfs_dir/lib64 -L$optimfs_dir/lib -lnccl"
             # as in a package of Python, where only that name exists
             AS_IF([test -f "$optimfs_dir/lib/libnccl.so.2" && test ! -e "$optimfs_dir/lib/libnccl.so"],
                 [NCCL_LIBS="-L$optimfs_dir/lib -l:libnccl.so.2 -Wl,--enable-new-dtags -Wl,-rpath,$optimfs_dir/lib"])])
    done
])
AS_IF([test "x$with_nccl" != xno && test "x$with_nccl" != xcheck && test "x$optimfs_have_nccl" = xno],
    [AC_MSG_ERROR([--with-nccl: no nccl.h (it needs --with-cuda too)])])
AC_SUBST([NCCL_CFLAGS])
AC_SUBST([NCCL_LIBS])
OPTIMFS_REPORT([nccl], [NCCL], [NCCL is there])
])
