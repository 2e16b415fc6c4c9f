/* A stand-in for AMD's libamd_smi.so under the real amdsmi binding (7.0). The GPUs lie in a mapped file
 * (FAKE_AMDSMI_STATE; their names begin with FAKE_AMDSMI_NODE), so that a limit outlives the process that
 * set it, and a test can look at it from outside. Every function that is not here answers "not supported": fake_amdsmi.py writes those.
 * Each GPU is a socket of its own. The layout is mirrored in fake_amdsmi.py. */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVAL = 1, NOT_SUPPORTED = 2, NO_PERM = 10, NOT_INIT = 32, DRIVER_NOT_LOADED = 34 };

typedef struct {
  uint64_t low_mhz, high_mhz, memory_mhz, limit_mhz; /* 0 = no limit */
  uint64_t denied, load_pct, power_capped, hot;      /* who may set, and what holds it down */
  uint64_t no_limits, no_energy, no_violations;      /* what this part does not answer */
  uint64_t sets, resets;
  uint64_t temperature_c; /* of its hottest spot; 0 = it does not say */
} gpu_t;

typedef struct {
  uint64_t gpus;
  uint64_t struck_calls, struck_pct, struck_until_us; /* whole kinds of calls fail: now and then, to a moment */
  uint64_t struck_code;                               /* ... with this code; 0 = another one each time */
  gpu_t gpu[8];
} state_t;

static state_t *state;

/* Source: amdsmi.h 7.0, enum amdsmi_status_t */
static const int codes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 30, 31,
                            32, 33, 34, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, -2, -1};
enum { OPEN = 1, READ = 2, SET = 4, RESET = 8, CLOSE = 16, CODES = sizeof codes / sizeof *codes };

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static unsigned drawn(unsigned below) {
  static _Thread_local unsigned seed;
  if (!seed) seed = ((unsigned)now_us() ^ (unsigned)getpid() << 8) | 1u;
  return (unsigned)rand_r(&seed) % below;
}

static int struck(unsigned kind) {
  if (!state) return NOT_INIT;
  if (!(state->struck_calls & kind)) return SUCCESS;
  if (now_us() >= state->struck_until_us && drawn(100) >= state->struck_pct) return SUCCESS;
  return state->struck_code ? (int)state->struck_code : codes[drawn(CODES)];
}

#define CHECK_FOR(g, kind) do { \
  if (!state) return NOT_INIT; \
  if ((g) < state->gpu || (g) >= state->gpu + state->gpus) return INVAL; \
  int error_ = struck(kind); \
  if (error_) return error_; \
} while (0)
#define CHECK(g) CHECK_FOR(g, READ)

int amdsmi_init(uint64_t flags) {
  (void)flags;
  const char *path = getenv("FAKE_AMDSMI_STATE");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return DRIVER_NOT_LOADED;
  void *mapped = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return DRIVER_NOT_LOADED;
  state = mapped; /* never unmapped: other threads may still read */
  return struck(OPEN);
}

int amdsmi_shut_down(void) { return struck(CLOSE); }

int amdsmi_get_socket_handles(uint32_t *count, void **sockets) {
  int error = struck(OPEN);
  if (error) return error;
  if (sockets)
    for (uint32_t i = 0; i < *count; i++) sockets[i] = &state->gpu[i];
  *count = (uint32_t)state->gpus;
  return SUCCESS;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **processors) {
  if (processors) processors[0] = socket;
  *count = 1;
  return SUCCESS;
}

int amdsmi_get_gpu_device_uuid(gpu_t *g, unsigned *length, char *uuid) {
  CHECK(g);
  snprintf(uuid, *length, "%s-1000-8000-%012u", getenv("FAKE_AMDSMI_NODE"), (unsigned)(g - state->gpu));
  return SUCCESS;
}

int amdsmi_get_gpu_device_bdf(gpu_t *g, uint64_t *bdf) { /* function:3 device:5 bus:8 domain:48 */
  CHECK(g);
  *bdf = (uint64_t)(g - state->gpu + 1) << 8;
  return SUCCESS;
}

typedef struct {
  char market_name[256];
  uint32_t vendor_id;
  char vendor_name[256];
  uint32_t subvendor_id;
  uint64_t device_id;
  uint32_t rev_id;
  char asic_serial[256];
  uint32_t oam_id, compute_units;
  uint64_t graphics_version;
  uint32_t subsystem_id, reserved[21];
} asic_t;

int amdsmi_get_gpu_asic_info(gpu_t *g, asic_t *asic) {
  CHECK(g);
  memset(asic, 0, sizeof *asic);
  snprintf(asic->market_name, sizeof asic->market_name, "Fake MI300X");
  snprintf(asic->asic_serial, sizeof asic->asic_serial, "0x%X", 0xA0u + (unsigned)(g - state->gpu));
  return SUCCESS;
}

int amdsmi_get_gpu_driver_info(gpu_t *g, char info[3][256]) {
  CHECK(g);
  memset(info, 0, 3 * 256);
  snprintf(info[0], 256, "9.99.1");
  return SUCCESS;
}

typedef struct {
  uint32_t clk, min_clk, max_clk;
  uint8_t locked, deep_sleep, padding[2];
  uint32_t reserved[4];
} clock_t_;

static uint64_t clock_of(const gpu_t *g) { return g->limit_mhz ? g->limit_mhz : g->high_mhz; }

int amdsmi_get_clock_info(gpu_t *g, unsigned kind, clock_t_ *info) {
  CHECK(g);
  memset(info, 0, sizeof *info);
  info->clk = (uint32_t)(kind == 4 ? g->memory_mhz : clock_of(g));
  info->max_clk = (uint32_t)(kind == 4 ? g->memory_mhz : g->high_mhz);
  return SUCCESS;
}

typedef struct { uint64_t lower, upper, reserved[2]; } range_t;
typedef struct { range_t sclk, mclk, sclk_limits, mclk_limits; uint64_t curve[6]; uint32_t regions, padding; } volt_t;

int amdsmi_get_gpu_od_volt_info(gpu_t *g, volt_t *info) {
  CHECK(g);
  if (g->no_limits) return NOT_SUPPORTED;
  memset(info, 0, sizeof *info);
  info->sclk = (range_t){.lower = g->low_mhz, .upper = clock_of(g)};
  info->sclk_limits = (range_t){.lower = g->low_mhz, .upper = g->high_mhz};
  return SUCCESS;
}

int amdsmi_get_energy_count(gpu_t *g, uint64_t *count, float *resolution_uj, uint64_t *stamp_ns) {
  CHECK(g);
  if (g->no_energy) return NOT_SUPPORTED;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  *stamp_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
  *resolution_uj = 15.26f;
  *count = *stamp_ns / 1000000u * 20u; /* about 300 W, a step each millisecond */
  return SUCCESS;
}

int amdsmi_get_temp_metric(gpu_t *g, unsigned sensor, unsigned metric, int64_t *degrees) {
  CHECK(g);
  if (sensor != 1 || metric || !g->temperature_c) return NOT_SUPPORTED; /* hot spot, at present */
  *degrees = (int64_t)g->temperature_c;
  return SUCCESS;
}

int amdsmi_get_gpu_activity(gpu_t *g, uint32_t usage[16]) {
  CHECK(g);
  memset(usage, 0, 16 * sizeof *usage);
  usage[0] = (uint32_t)g->load_pct;
  return SUCCESS;
}

typedef struct {
  uint64_t stamps[2], counts[7], percents[6];
  uint8_t prochot, power, socket, regulator, memory, below, padding[2];
  uint64_t totals[8][64];
  uint8_t flags[4][64];
  uint64_t reserved[3][64];
} violation_t;

int amdsmi_get_violation_status(gpu_t *g, violation_t *seen) {
  CHECK(g);
  if (g->no_violations) return NOT_SUPPORTED;
  memset(seen, 0, sizeof *seen);
  seen->power = g->power_capped != 0;
  seen->socket = g->hot != 0;
  return SUCCESS;
}

int amdsmi_set_gpu_clk_limit(gpu_t *g, unsigned kind, unsigned limit, uint64_t mhz) {
  CHECK_FOR(g, SET);
  if (g->denied) return NO_PERM;
  if (kind != 0 || limit != 1 || mhz < g->low_mhz || mhz > g->high_mhz) return INVAL;
  g->limit_mhz = mhz;
  g->sets++;
  return SUCCESS;
}

int amdsmi_set_gpu_perf_level(gpu_t *g, unsigned level) {
  CHECK_FOR(g, RESET);
  if (g->denied) return NO_PERM;
  if (level != 0) return NOT_SUPPORTED;
  g->limit_mhz = 0;
  g->resets++;
  return SUCCESS;
}
