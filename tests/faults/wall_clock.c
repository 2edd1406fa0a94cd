// A wall clock that a test moves: preloaded into a process (LD_PRELOAD), and inherited by all that it starts.
//
// The file that WHEEL_UDF_WALL_CLOCK names holds two numbers of ns: how far the clock is ahead of the real one, and the instant at which it stands
// (0: it runs). The monotonic clock, timers, and the times of files stay as they are.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;
static const volatile int64_t *told;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("WHEEL_UDF_WALL_CLOCK");
  int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void *page = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) told = page;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int failed = (int)syscall(SYS_clock_gettime, clock, at);
  if (failed != 0 || told == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  int64_t standing = told[1];
  int64_t now = standing != 0 ? standing : at->tv_sec * SECOND + at->tv_nsec + told[0];
  at->tv_sec = now / SECOND;
  at->tv_nsec = now % SECOND;
  return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at != NULL) *at = now.tv_sec;
  return now.tv_sec;
}
