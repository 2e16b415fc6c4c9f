/* A network disk, preloaded: what is under $SLOW_DISK is slow, forgets late what was not there, and goes stale.

   Every call waits $SLOW_DISK_S. A name that was not there is not there for $SLOW_DISK_CACHE_S after, whatever
   others have made of it meanwhile. Every $SLOW_DISK_STALE-th opening for reading fails with ESTALE. Calls of a
   process's first thread are noted in $SLOW_DISK_NOTES: "pid seconds call name".
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define REMEMBERED 256
static struct { unsigned long name; double at_s; } gone[REMEMBERED];
static int opened;

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text ? atof(text) : otherwise;
}

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

static unsigned long hashed(const char *name) {
  unsigned long hash = 5381;
  for (; *name; name++) hash = 33 * hash + (unsigned char)*name;
  return hash;
}

static int mine(const char *name) {
  const char *disk = getenv("SLOW_DISK");
  return disk && name && strncmp(name, disk, strlen(disk)) == 0;
}

static void wait_and_note(const char *call, const char *name) {
  double for_s = number("SLOW_DISK_S", 0.0);
  const char *notes = getenv("SLOW_DISK_NOTES");
  if (notes && syscall(SYS_gettid) == getpid()) {
    char line[512];
    int length = snprintf(line, sizeof line, "%d %.3f %s %s\n", getpid(), now_s(), call, name);
    int file = syscall(SYS_openat, AT_FDCWD, notes, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (file >= 0) {
      syscall(SYS_write, file, line, length);
      close(file);
    }
  }
  struct timespec wait = {(time_t)for_s, (long)(1e9 * (for_s - (time_t)for_s))};
  nanosleep(&wait, NULL);
}

static int still_gone(const char *name) {
  unsigned long hash = hashed(name);
  return gone[hash % REMEMBERED].name == hash &&
         now_s() - gone[hash % REMEMBERED].at_s < number("SLOW_DISK_CACHE_S", 0.0);
}

static int seen(const char *name, int result) {
  if (result < 0 && errno == ENOENT) {
    unsigned long hash = hashed(name);
    gone[hash % REMEMBERED].name = hash;
    gone[hash % REMEMBERED].at_s = now_s();
  }
  return result;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define LOOK_UP(call, name)            \
  if (mine(name)) {                    \
    wait_and_note(call, name);         \
    if (still_gone(name)) {            \
      errno = ENOENT;                  \
      return -1;                       \
    }                                  \
  }

static int opens(const char *name, int flags) {
  if (!mine(name)) return 0;
  wait_and_note("open", name);
  if (flags & O_CREAT) {
    gone[hashed(name) % REMEMBERED].name = 0;
    return 0;
  }
  if (still_gone(name)) {
    errno = ENOENT;
    return -1;
  }
  int every = (int)number("SLOW_DISK_STALE", 0.0);
  if (every && !(flags & (O_WRONLY | O_RDWR | O_DIRECTORY)) && ++opened % every == 0) {
    errno = ESTALE;
    return -1;
  }
  return 0;
}

#define OPEN(function, parameters, arguments)                           \
  int function parameters {                                             \
    int mode = 0;                                                       \
    if (flags & (O_CREAT | O_TMPFILE)) {                                \
      va_list more;                                                     \
      va_start(more, flags);                                            \
      mode = va_arg(more, int);                                         \
      va_end(more);                                                     \
    }                                                                   \
    return opens(name, flags) < 0 ? -1 : seen(name, REAL(function) arguments); \
  }
OPEN(open, (const char *name, int flags, ...), (name, flags, mode))
OPEN(open64, (const char *name, int flags, ...), (name, flags, mode))
OPEN(openat, (int at, const char *name, int flags, ...), (at, name, flags, mode))
OPEN(openat64, (int at, const char *name, int flags, ...), (at, name, flags, mode))

int stat(const char *name, struct stat *found) {
  LOOK_UP("stat", name)
  return seen(name, REAL(stat)(name, found));
}

int lstat(const char *name, struct stat *found) {
  LOOK_UP("lstat", name)
  return seen(name, REAL(lstat)(name, found));
}

int stat64(const char *name, struct stat64 *found) {
  LOOK_UP("stat", name)
  return seen(name, REAL(stat64)(name, found));
}

int lstat64(const char *name, struct stat64 *found) {
  LOOK_UP("lstat", name)
  return seen(name, REAL(lstat64)(name, found));
}

int rename(const char *from, const char *to) {
  if (mine(to)) {
    wait_and_note("rename", to);
    gone[hashed(to) % REMEMBERED].name = 0;
  }
  return REAL(rename)(from, to);
}

int renameat(int at, const char *from, int of, const char *to) {
  if (mine(to)) {
    wait_and_note("rename", to);
    gone[hashed(to) % REMEMBERED].name = 0;
  }
  return REAL(renameat)(at, from, of, to);
}

int mkdir(const char *name, mode_t mode) {
  if (mine(name)) wait_and_note("mkdir", name);
  return REAL(mkdir)(name, mode);
}

int unlink(const char *name) {
  if (mine(name)) wait_and_note("unlink", name);
  return REAL(unlink)(name);
}
