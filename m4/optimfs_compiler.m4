# OPTIMFS_WARNINGS: WARN_CFLAGS, errors of them with --enable-werror.
AC_DEFUN([OPTIMFS_WARNINGS], [
AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat compiler warnings as errors])],
    [], [enable_werror=no])
WARN_CFLAGS="-Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes"
WARN_CFLAGS="$WARN_CFLAGS -Wmissing-prototypes -Wwrite-strings -Wvla -Wformat=2"
AS_IF([test "x$enable_werror" = xyes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
AC_SUBST([WARN_CFLAGS])
HARDEN_CFLAGS="-fstack-protector-strong -fno-strict-aliasing"
HARDEN_LDFLAGS="-Wl,-z,relro -Wl,-z,now"
AC_SUBST([HARDEN_CFLAGS])
AC_SUBST([HARDEN_LDFLAGS])
])

# OPTIMFS_SANITIZER: SAN_CFLAGS from --enable-sanitizer=LIST.
AC_DEFUN([OPTIMFS_SANITIZER], [
AC_ARG_ENABLE([sanitizer],
    [AS_HELP_STRING([--enable-sanitizer=LIST],
        [build with -fsanitize=LIST: address,undefined or thread])],
    [], [enable_sanitizer=no])
AS_CASE([$enable_sanitizer],
    [no], [],
    [yes], [enable_sanitizer=address,undefined])
AS_IF([test "x$enable_sanitizer" != xno],
    [SAN_CFLAGS="-fsanitize=$enable_sanitizer -fno-omit-frame-pointer"
     AS_CASE([$enable_sanitizer], [*undefined*],
        [SAN_CFLAGS="$SAN_CFLAGS -fno-sanitize-recover=undefined"])])
AC_SUBST([SAN_CFLAGS])
AS_IF([test "x$enable_sanitizer" != xno],
    [AC_DEFINE([SANITIZED], [1], [Define to 1 if a sanitizer is linked.])])
AM_CONDITIONAL([SANITIZED], [test "x$enable_sanitizer" != xno])
])

# OPTIMFS_FUZZING: with --enable-fuzzing the fuzz targets link libFuzzer
# (CC=clang); without it they replay their corpus.
AC_DEFUN([OPTIMFS_FUZZING], [
AC_ARG_ENABLE([fuzzing],
    [AS_HELP_STRING([--enable-fuzzing],
        [link the fuzz targets with libFuzzer (needs CC=clang)])],
    [], [enable_fuzzing=no])
AS_IF([test "x$enable_fuzzing" = xyes], [
    FUZZ_CFLAGS="-fsanitize=fuzzer-no-link"
    FUZZ_LDFLAGS="-fsanitize=fuzzer"
    AC_MSG_CHECKING([whether $CC links libFuzzer])
    optimfs_cflags=$CFLAGS
    CFLAGS="$CFLAGS -fsanitize=fuzzer"
    AC_LINK_IFELSE([AC_LANG_SOURCE([[
#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *, size_t);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) { (void) p; (void) n; return 0; }
]])], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([--enable-fuzzing needs CC=clang and its libFuzzer runtime])])
    CFLAGS=$optimfs_cflags
])
AC_SUBST([FUZZ_CFLAGS])
AC_SUBST([FUZZ_LDFLAGS])
AM_CONDITIONAL([FUZZING], [test "x$enable_fuzzing" = xyes])
])
