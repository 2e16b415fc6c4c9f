/* A stand-in for NVIDIA's libnvidia-ml.so.1 under the real pynvml. Every GPU lives in a mapped file
 * (FAKE_NVML_STATE), so that a locked clock outlives the process that set it, as on real hardware, and a
 * test can look at it from outside. The layout is mirrored in fake_nvml.py. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, VERSION_MISMATCH = 25 };
enum { OPEN = 1, READ = 2, SET = 4, RESET = 8, CLOSE = 16 }; /* kinds of calls that may be struck */

typedef struct {
  char name[96], uuid[96], pci[32];
  uint64_t low_mhz, high_mhz, step_mhz, memory_mhz; /* the grid */
  uint64_t mig, persistence, reasons, denied;       /* state, and who may lock */
  uint64_t call_us, settle_us, period_us;           /* latencies, the counter's period */
  uint64_t any_error, set_error, reset_error, energy_error; /* injected return codes */
  uint64_t locked_mhz, previous_mhz, changed_us;    /* 0 = not locked; the clock before, and when */
  uint64_t sets, resets;                            /* calls that reached the driver */
  uint64_t energy_uj, energy_at_us;                 /* integral up to a moment */
  uint64_t forgets;                                 /* a lock is stored and does not hold */
  uint64_t power_profile;                           /* number of the enforced one; 0 = the driver has none */
  uint64_t architecture;                            /* as nvml.h counts */
  uint64_t processes, utilization, used_mib;        /* who works on it */
  uint64_t silent;                                  /* ... and does not tell: 1 the processes, 2 anything */
  uint64_t refuse_until_us, refuse_code;            /* a tired driver, to a moment */
  uint64_t ignores;                                 /* resets that succeed and do nothing, yet to come */
  uint64_t minor;                                   /* /dev/nvidiaN */
  uint64_t jitter_mhz;                              /* the clock that is read jumps below the one in force */
  uint64_t idle_mhz;                                /* where it falls, lock or not, while its load is 0; 0 = stays */
  uint64_t clamp_mhz;                               /* the most that it holds under load, with no reason; 0 = any */
  uint64_t app_mhz, default_app_mhz, boost_mhz;     /* application clock, its default, customer boost; 0 = none */
  uint64_t limit_mw, default_limit_mw;              /* power limit in force, and the board's own; 0 = not told */
  uint64_t smoothing;                               /* of power: 2 = on, 1 = off, 0 = none */
  uint64_t temperature_c;                           /* what the chip's sensor reads; 0 = there is none */
  uint64_t read_us;                                 /* what a read of the energy counter takes */
} gpu_t;

typedef struct {
  char magic[8];
  uint64_t gpus, init_error;
  uint64_t apart; /* calls to different GPUs do not wait for each other */
  uint64_t struck_calls, struck_pct, struck_until_us; /* whole kinds of calls fail: now and then, to a moment */
  uint64_t struck_code;                               /* ... with this code; 0 = another one each time */
  char driver[80];
  gpu_t gpu[16];
} state_t;

typedef struct {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
} pci_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, mutex_of[16];
static state_t *state;
static int file = -1, users;
static char mapped[4096]; /* the node's file */

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void hold(const gpu_t *g, short type) { /* between processes: the GPU's own bytes of the file */
  struct flock range = {.l_type = type, .l_whence = SEEK_SET,
                        .l_start = (char *)g - (char *)state, .l_len = sizeof *g};
  fcntl(file, F_OFD_SETLKW, &range);
}

static void enter(const gpu_t *g) {
  if (state->apart) { pthread_mutex_lock(&mutex_of[g - state->gpu]); hold(g, F_WRLCK); }
  else { pthread_mutex_lock(&mutex); flock(file, LOCK_EX); }
}

static void leave(const gpu_t *g) {
  if (state->apart) { hold(g, F_UNLCK); pthread_mutex_unlock(&mutex_of[g - state->gpu]); }
  else { flock(file, LOCK_UN); pthread_mutex_unlock(&mutex); }
}

static uint64_t clock_at(const gpu_t *g, uint64_t at_us) {
  uint64_t wanted = g->locked_mhz && !g->forgets ? g->locked_mhz : g->high_mhz;
  if (g->idle_mhz && !g->utilization) return g->idle_mhz;
  if (g->clamp_mhz && g->utilization && wanted > g->clamp_mhz) wanted = g->clamp_mhz;
  return at_us < g->changed_us + g->settle_us ? g->previous_mhz : wanted;
}

static void count_energy(gpu_t *g) { /* 0.2 W per MHz: enough to tick and to differ */
  uint64_t now = now_us();
  g->energy_uj += (now - g->energy_at_us) * clock_at(g, now) / 5u;
  g->energy_at_us = now;
}

static void change(gpu_t *g, uint64_t locked_mhz) {
  count_energy(g);
  g->previous_mhz = clock_at(g, now_us());
  g->changed_us = now_us();
  g->locked_mhz = locked_mhz;
}

static unsigned drawn(unsigned below) {
  static _Thread_local unsigned seed;
  if (!seed) seed = ((unsigned)now_us() ^ (unsigned)getpid() << 8) | 1u;
  return (unsigned)rand_r(&seed) % below;
}

static int struck(unsigned kind) { /* Source of the codes: nvml.h 13, enum nvmlReturn_t (1 to 29, 999) */
  if (!(state->struck_calls & kind)) return SUCCESS;
  if (now_us() >= state->struck_until_us && drawn(100) >= state->struck_pct) return SUCCESS;
  unsigned code = 1u + drawn(30);
  return state->struck_code ? (int)state->struck_code : code == 30 ? 999 : (int)code;
}

static int check(const gpu_t *g, unsigned kind) {
  if (!state) return UNINITIALIZED;
  if (g < state->gpu || g >= state->gpu + state->gpus) return INVALID;
  return g->any_error ? (int)g->any_error : struck(kind);
}

#define CHECK_FOR(g, kind) do { int error_ = check(g, kind); if (error_) return error_; } while (0)
#define CHECK(g) CHECK_FOR(g, READ)

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  const char *path = getenv("FAKE_NVML_STATE");
  if (!path) return DRIVER_NOT_LOADED;
  pthread_mutex_lock(&mutex);
  int error = SUCCESS;
  if (users && strcmp(path, mapped)) users = 0; /* another test's node: a shutdown was struck there */
  if (!users) {
    snprintf(mapped, sizeof mapped, "%s", path);
    file = open(path, O_RDWR | O_CLOEXEC);
    state = file < 0 ? NULL : mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!state || state == MAP_FAILED) { state = NULL; error = DRIVER_NOT_LOADED; }
    else error = (int)state->init_error;
  }
  if (!error) error = struck(OPEN);
  if (!error) users++;
  else if (!users && state) { munmap(state, sizeof *state); close(file); state = NULL; file = -1; }
  pthread_mutex_unlock(&mutex);
  return error;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
  pthread_mutex_lock(&mutex);
  int known = users > 0, error = known ? struck(CLOSE) : UNINITIALIZED;
  if (!error && !--users) { munmap(state, sizeof *state); close(file); state = NULL; file = -1; }
  pthread_mutex_unlock(&mutex);
  return error;
}

const char *nvmlErrorString(int code) {
  static _Thread_local char text[32];
  snprintf(text, sizeof text, "fake error %d", code);
  return text;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
  if (!state) return UNINITIALIZED;
  snprintf(version, length, "%s", state->driver);
  return struck(READ);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  if (!state) return UNINITIALIZED;
  *count = (unsigned)state->gpus;
  return struck(OPEN);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu_t **g) {
  if (!state) return UNINITIALIZED;
  if (index >= state->gpus) return INVALID;
  *g = &state->gpu[index];
  return check(*g, OPEN);
}

static int find(const char *wanted, size_t offset, gpu_t **g) {
  if (!state) return UNINITIALIZED;
  for (uint64_t i = 0; i < state->gpus; i++)
    if (!strcmp((char *)&state->gpu[i] + offset, wanted)) { *g = &state->gpu[i]; return check(*g, OPEN); }
  return NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, gpu_t **g) { return find(uuid, offsetof(gpu_t, uuid), g); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, gpu_t **g) { return find(bus, offsetof(gpu_t, pci), g); }

int nvmlDeviceGetName(gpu_t *g, char *name, unsigned length) {
  CHECK(g);
  snprintf(name, length, "%s", g->name);
  return SUCCESS;
}

int nvmlDeviceGetUUID(gpu_t *g, char *uuid, unsigned length) {
  CHECK(g);
  snprintf(uuid, length, "%s", g->uuid);
  return SUCCESS;
}

int nvmlDeviceGetIndex(gpu_t *g, unsigned *index) {
  CHECK(g);
  *index = (unsigned)(g - state->gpu);
  return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(gpu_t *g, pci_t *pci) {
  CHECK(g);
  memset(pci, 0, sizeof *pci);
  snprintf(pci->bus_id, sizeof pci->bus_id, "%s", g->pci);
  return SUCCESS;
}

int nvmlDeviceGetMigMode(gpu_t *g, unsigned *current, unsigned *pending) {
  CHECK(g);
  *current = *pending = (unsigned)g->mig;
  return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(gpu_t *g, unsigned *mode) {
  CHECK(g);
  *mode = (unsigned)g->persistence;
  return SUCCESS;
}

int nvmlDeviceGetSupportedMemoryClocks(gpu_t *g, unsigned *count, unsigned *clocks) {
  CHECK(g);
  unsigned room = *count;
  *count = 1;
  if (!clocks || room < *count) return INSUFFICIENT_SIZE;
  clocks[0] = (unsigned)g->memory_mhz;
  return SUCCESS;
}

int nvmlDeviceGetSupportedGraphicsClocks(gpu_t *g, unsigned memory, unsigned *count, unsigned *clocks) {
  CHECK(g);
  if (memory != g->memory_mhz) return NOT_FOUND;
  unsigned room = *count;
  *count = (unsigned)((g->high_mhz - g->low_mhz) / g->step_mhz + 1);
  if (!clocks || room < *count) return INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < *count; i++) clocks[i] = (unsigned)(g->high_mhz - i * g->step_mhz);
  return SUCCESS;
}

int nvmlDeviceGetClockInfo(gpu_t *g, unsigned type, unsigned *mhz) {
  CHECK(g);
  uint64_t jump = g->jitter_mhz ? now_us() / 1000u * 2654435761u % g->jitter_mhz : 0;
  *mhz = type == 2 ? (unsigned)g->memory_mhz : (unsigned)(clock_at(g, now_us()) - jump);
  return SUCCESS;
}

#ifdef OLD_DRIVER /* before 535 the call had this name */
int nvmlDeviceGetCurrentClocksThrottleReasons(
#else
int nvmlDeviceGetCurrentClocksEventReasons(
#endif
    gpu_t *g, unsigned long long *reasons) {
  CHECK(g);
  *reasons = g->reasons;
  return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(gpu_t *g, unsigned long long *mj) {
  CHECK(g);
  if (g->energy_error) return (int)g->energy_error;
  usleep((useconds_t)g->read_us);
  enter(g);
  uint64_t period = g->period_us ? g->period_us : 1;
  uint64_t tick = now_us() / period * period; /* as of the last tick */
  if (tick > g->energy_at_us) {
    g->energy_uj += (tick - g->energy_at_us) * clock_at(g, tick) / 5u;
    g->energy_at_us = tick;
  }
  *mj = g->energy_uj / 1000u;
  leave(g);
  return SUCCESS;
}

static int refused(const gpu_t *g) {
  return now_us() < g->refuse_until_us ? (int)g->refuse_code : SUCCESS;
}

int nvmlDeviceSetGpuLockedClocks(gpu_t *g, unsigned low, unsigned high) {
  CHECK_FOR(g, SET);
  if (g->denied) return NO_PERMISSION;
  int error = refused(g);
  if (error) return error;
  if (g->set_error) return (int)g->set_error;
  if (low > high || high > g->high_mhz || low < g->low_mhz) return INVALID;
  enter(g); /* held during the call: the driver takes one at a time */
  usleep((useconds_t)g->call_us);
  change(g, high);
  g->sets++;
  leave(g);
  return SUCCESS;
}

int nvmlDeviceResetGpuLockedClocks(gpu_t *g) {
  CHECK_FOR(g, RESET);
  if (g->denied) return NO_PERMISSION;
  if (g->reset_error) return (int)g->reset_error;
  int error = refused(g);
  if (error) return error;
  enter(g);
  usleep((useconds_t)g->call_us);
  if (g->ignores) g->ignores--;
  else change(g, 0);
  g->resets++;
  leave(g);
  return SUCCESS;
}

static int told(uint64_t mhz, unsigned *clock) {
  if (!mhz) return NOT_SUPPORTED;
  *clock = (unsigned)mhz;
  return SUCCESS;
}

int nvmlDeviceGetApplicationsClock(gpu_t *g, unsigned type, unsigned *clock) {
  CHECK(g);
  return type == 2 ? NOT_SUPPORTED : told(g->app_mhz, clock);
}

int nvmlDeviceGetDefaultApplicationsClock(gpu_t *g, unsigned type, unsigned *clock) {
  CHECK(g);
  return type == 2 ? NOT_SUPPORTED : told(g->default_app_mhz, clock);
}

int nvmlDeviceGetMaxClockInfo(gpu_t *g, unsigned type, unsigned *clock) {
  CHECK(g);
  return told(type == 2 ? g->memory_mhz : g->high_mhz, clock);
}

int nvmlDeviceGetMaxCustomerBoostClock(gpu_t *g, unsigned type, unsigned *clock) {
  CHECK(g);
  return type == 2 ? NOT_SUPPORTED : told(g->boost_mhz, clock);
}

static int told_mw(uint64_t mw, unsigned *limit) {
  if (!mw) return NOT_SUPPORTED;
  *limit = (unsigned)mw;
  return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(gpu_t *g, unsigned *limit) {
  CHECK(g);
  return told_mw(g->limit_mw, limit);
}

int nvmlDeviceGetPowerManagementDefaultLimit(gpu_t *g, unsigned *limit) {
  CHECK(g);
  return told_mw(g->default_limit_mw, limit);
}
static int heat(const gpu_t *g, unsigned *degrees) {
  if (!g->temperature_c) return NOT_SUPPORTED;
  *degrees = (unsigned)g->temperature_c;
  return SUCCESS;
}

#ifdef OLD_DRIVER /* before 575 */
int nvmlDeviceGetTemperature(gpu_t *g, unsigned sensor, unsigned *degrees) {
  CHECK(g);
  return sensor ? INVALID : heat(g, degrees);
}
#else
typedef struct {
  unsigned version, sensor;
  int degrees;
} temperature_t;

int nvmlDeviceGetTemperatureV(gpu_t *g, temperature_t *read) {
  CHECK(g);
  if (read->version != (sizeof *read | 1u << 24)) return VERSION_MISMATCH;
  return read->sensor ? INVALID : heat(g, (unsigned *)&read->degrees);
}
#endif

int nvmlDeviceGetMinorNumber(gpu_t *g, unsigned *minor) {
  CHECK(g);
  *minor = (unsigned)g->minor;
  return SUCCESS;
}

int nvmlDeviceGetArchitecture(gpu_t *g, unsigned *architecture) {
  CHECK(g);
  *architecture = (unsigned)g->architecture;
  return SUCCESS;
}

typedef struct {
  unsigned field, scope;
  long long stamp_us, latency_us;
  unsigned type, answer;
  union { double d; unsigned ui; unsigned long long ull; } value;
} field_t;

static int field_value(const gpu_t *g, const field_t *field, unsigned *value) { /* Source: pynvml 13, NVML_FI_* */
  if (field->field == 186 && !field->scope) { /* power at this instant, of the GPU alone */
    *value = (unsigned)(clock_at(g, now_us()) * 200u); /* as count_energy has it, in mW */
    return SUCCESS;
  }
  if (!g->smoothing || field->field != 251) return NOT_SUPPORTED;
  *value = g->smoothing > 1;
  return SUCCESS;
}

int nvmlDeviceGetFieldValues(gpu_t *g, int count, field_t *fields) {
  CHECK(g);
  for (int i = 0; i < count; i++) {
    fields[i].type = 1; /* unsigned int */
    fields[i].answer = (unsigned)field_value(g, &fields[i], &fields[i].value.ui);
  }
  return SUCCESS;
}

typedef struct {
  unsigned version, performance[8], requested[8], enforced[8];
} profiles_t;

int nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(gpu_t *g, profiles_t *profiles) {
  CHECK(g);
  if (!g->power_profile) return NOT_SUPPORTED;
  if (profiles->version != (sizeof *profiles | 1u << 24)) return VERSION_MISMATCH;
  memset(profiles->performance, 0, sizeof *profiles - sizeof profiles->version);
  profiles->enforced[g->power_profile / 32] = 1u << g->power_profile % 32;
  return SUCCESS;
}

typedef struct {
  unsigned pid;
  unsigned long long used;
  unsigned graphics_instance, compute_instance;
} process_t;

int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t *g, unsigned *count, process_t *processes) {
  CHECK(g);
  if (g->silent >= 1) return NOT_SUPPORTED;
  unsigned room = *count;
  *count = (unsigned)g->processes;
  if (room < *count) return INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < *count; i++) processes[i] = (process_t){.pid = 4000 + i};
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(gpu_t *g, unsigned rates[2]) {
  CHECK(g);
  if (g->silent >= 2) return NOT_SUPPORTED;
  rates[0] = (unsigned)g->utilization;
  rates[1] = 0;
  return SUCCESS;
}

typedef struct {
  unsigned version;
  unsigned long long total, reserved, free, used;
} memory_t;

int nvmlDeviceGetMemoryInfo_v2(gpu_t *g, memory_t *memory) {
  CHECK(g);
  if (g->silent >= 2) return NOT_SUPPORTED;
  memory->total = 80ull << 30;
  memory->reserved = 600ull << 20;
  memory->used = (unsigned long long)g->used_mib << 20;
  memory->free = memory->total - memory->reserved - memory->used;
  return SUCCESS;
}
