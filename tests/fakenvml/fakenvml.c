/* A libnvidia-ml.so.1 without a GPU behind it, for tests of what reads one.
 *
 * It is steered while it runs by the text file $FAKENVML_STATE, lines of KEY=VALUE, which is read
 * again when it was replaced, and it writes one line for each call to $FAKENVML_TRACE. What a
 * caller must not do is written there too, on a line that begins with "!".
 *
 * Keys (defaults are those of a healthy H100; fn is a function's exported name):
 *   count, driver, epoch            GPUs; driver version; a number that changes when it is reloaded
 *   now                             seconds; with it, time stands still between two states
 *   all.ret, FN.ret, gpuI.FN.ret    what is returned in place of an answer
 *   FN.ms, gpuI.FN.ms               how long a call takes, milliseconds
 *   FN.hang, gpuI.FN.hang           1: calls do not return until this is 0
 *   gpuI.lost                       1: off the bus
 *   gpuI.name|uuid|util|power|...   answers, in NVML's units
 *   gpuI.gpm                        0: a GPU without GPM
 *   gpuI.gpm.N, gpuI.gpm.N.ret      value and return code of GPM metric N
 *   gpuI.field.N, .type, .ret       value, type and return code of field N
 *   gpuI.mig, gpuI.migK.gi|uuid|name|used|gpm.N   instances; K from 0
 *   xids, xid.N                     events so far; the Nth as GPU:CODE or GPU:CODE:INSTANCE
 *
 * GPM samples hold the integral of each metric over time, as the hardware's counters do, so that
 * the answer to a pair is the mean between them, and nonsense if the pair is wrong.
 * With -DOLD it is the library of a driver before GPM, memory version 2 and event reasons.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { OK, UNINITIALIZED, INVALID, UNSUPPORTED, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10, LOST = 15 };
enum { GPUS = 16, MIGS = 8, METRICS = 100, GENERATIONS = 64, KEYS = 8192, LIVE = 4096 };

/* State: a sorted list of keys. */

static struct { char *key, *value; } keys[KEYS];
static int n_keys;
static char *text;
static struct timespec read_at;
static ino_t read_inode;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int by_key(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

static const char *find(const char *key) {
  int low = 0, high = n_keys - 1;
  while (low <= high) {
    int middle = (low + high) / 2, way = strcmp(key, keys[middle].key);
    if (!way) return keys[middle].value;
    if (way < 0) high = middle - 1; else low = middle + 1;
  }
  return NULL;
}

static const char *get(const char *otherwise, const char *format, ...) {
  char key[160];
  va_list list;
  va_start(list, format);
  vsnprintf(key, sizeof key, format, list);
  va_end(list);
  const char *value = find(key);
  return value ? value : otherwise;
}
#define NUMBER(otherwise, ...) ({ const char *v_ = get(NULL, __VA_ARGS__); v_ ? strtod(v_, NULL) : (double)(otherwise); })
#define WHOLE(otherwise, ...) ({ const char *v_ = get(NULL, __VA_ARGS__); v_ ? strtoull(v_, NULL, 0) : (unsigned long long)(otherwise); })

/* Time, and the integrals of the GPM metrics. */

static double integral[GPUS][MIGS + 1][METRICS], integrated_to;
static char mig_uuid[GPUS][MIGS][96];

static double wall(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static double now(void) { return find("now") ? NUMBER(0, "now") : wall(); }

static double usual(int metric) {
  switch (metric) {
    case 1: return 96.5;
    case 2: return 88.25;
    case 3: return 31.5;
    case 5: return 22.75;
    case 10: return 71;
    case 20: return 950;
    case 21: return 1220;
    case 60: case 61: return 20480;
  }
  return 0;
}
/* Looked up once for each state, for a sample needs all of them. */
static double gpm[GPUS][MIGS + 1][METRICS];
static void look_up_gpm(void) {
  for (int gpu = 0; gpu < GPUS && gpu < (int)WHOLE(1, "count"); gpu++)
    for (int mig = -1; mig < MIGS; mig++)
      for (int metric = 1; metric < METRICS; metric++) {
        if (mig >= 0 && !mig_uuid[gpu][mig][0]) continue;
        gpm[gpu][mig + 1][metric] =
            mig < 0 ? NUMBER(usual(metric), "gpu%d.gpm.%d", gpu, metric)
                    : NUMBER(usual(metric), "gpu%d.mig%d.gpm.%d", gpu, mig, metric);
      }
}
static void integrate(double until) {
  double step = until - integrated_to;
  if (step <= 0) return;
  for (int gpu = 0; gpu < GPUS && gpu < (int)WHOLE(1, "count"); gpu++)
    for (int mig = -1; mig < MIGS; mig++) {
      if (mig >= 0 && !mig_uuid[gpu][mig][0]) continue;
      for (int metric = 1; metric < METRICS; metric++) {
        double value = gpm[gpu][mig + 1][metric];
        if (isfinite(value)) integral[gpu][mig + 1][metric] += step * value;
      }
    }
  integrated_to = until;
}
static void begin_instances(void) {
  for (int gpu = 0; gpu < GPUS; gpu++)
    for (int mig = 0; mig < MIGS; mig++) {
      const char *uuid = get("", "gpu%d.mig%d.uuid", gpu, mig);
      if (strcmp(uuid, mig_uuid[gpu][mig])) {
        snprintf(mig_uuid[gpu][mig], sizeof mig_uuid[gpu][mig], "%s", uuid);
        for (int metric = 0; metric < METRICS; metric++) integral[gpu][mig + 1][metric] += 1e7;
      }
    }
}

static int steered; /* whether there is any key of that kind: most calls need not look */

static void reload(void) {
  const char *path = getenv("FAKENVML_STATE");
  struct stat s;
  if (!path || stat(path, &s)) return;
  if (s.st_ino == read_inode && s.st_mtim.tv_sec == read_at.tv_sec &&
      s.st_mtim.tv_nsec == read_at.tv_nsec)
    return;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  char *fresh = malloc(s.st_size + 1);
  ssize_t size = read(file, fresh, s.st_size);
  close(file);
  fresh[size < 0 ? 0 : size] = 0;
  /* What the old state says holds until the new one: by its own time, or by that of its file. */
  const char *at = strncmp(fresh, "now=", 4) ? strstr(fresh, "\nnow=") : fresh - 1;
  integrate(at ? strtod(at + 5, NULL) : s.st_mtim.tv_sec + s.st_mtim.tv_nsec * 1e-9);
  free(text);
  text = fresh;
  n_keys = 0;
  for (char *line = strtok(text, "\n"); line && n_keys < KEYS; line = strtok(NULL, "\n")) {
    char *equals = strchr(line, '=');
    if (!equals) continue;
    *equals = 0;
    keys[n_keys].key = line;
    keys[n_keys++].value = equals + 1;
  }
  qsort(keys, n_keys, sizeof keys[0], by_key);
  read_at = s.st_mtim;
  read_inode = s.st_ino;
  begin_instances();
  look_up_gpm();
  steered = 0;
  for (int i = 0; i < n_keys; i++) {
    const char *end = strrchr(keys[i].key, '.');
    steered |= end && (!strcmp(end, ".ret") || !strcmp(end, ".ms") || !strcmp(end, ".hang"));
  }
}

static void trace(const char *format, ...) {
  static int file = -2;
  if (file == -2) {
    const char *path = getenv("FAKENVML_TRACE");
    file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
  }
  if (file < 0) return;
  char line[256];
  va_list list;
  va_start(list, format);
  int size = vsnprintf(line, sizeof line - 1, format, list);
  va_end(list);
  line[size++] = '\n';
  if (write(file, line, size) != size) abort();
}

/* Handles, and what each call does first. */

struct device { int gpu, mig; unsigned generation; char uuid[96]; };
static struct device devices[GENERATIONS][GPUS][MIGS + 1];
static unsigned opened, generation;
static unsigned long long epoch;
static int inside, n_samples, n_sets;

struct call { int entered; };
static void leave(struct call *call) {
  if (call->entered) __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&lock);
}

static unsigned long long steer(const char *what, const char *name, struct device *device) {
  if (!steered) return 0;
  unsigned long long value = device ? WHOLE(0, "gpu%d.%s.%s", device->gpu, name, what) : 0;
  return value ? value : WHOLE(0, "%s.%s", name, what);
}
static void pass(long ms) {
  pthread_mutex_unlock(&lock);
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, NULL);
  pthread_mutex_lock(&lock);
  reload();
}

static int enter(struct call *call, const char *name, void *handle, int any_handle) {
  struct device *device = handle;
  pthread_mutex_lock(&lock);
  call->entered = 1;
  __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  reload();
  if (!handle) trace("%s", name);
  else trace(device->mig < 0 ? "%s %d" : "%s %d.%d", name, device->gpu, device->mig);
  if (!opened) return trace("! %s before nvmlInit", name), UNINITIALIZED;
  if (handle && device->generation != generation)
    return trace("! %s with the handle of an earlier nvmlInit", name), INVALID;
  if (!handle && any_handle) return INVALID;
  if (steer("ms", name, device)) pass(steer("ms", name, device));
  while (steer("hang", name, device)) pass(5);
  if (epoch != WHOLE(0, "epoch")) return WHOLE(UNINITIALIZED, "epoch.ret");
  if (steered && WHOLE(0, "all.ret")) return WHOLE(0, "all.ret");
  if (steer("ret", name, device)) return steer("ret", name, device);
  if (device && WHOLE(0, "gpu%d.lost", device->gpu)) return LOST;
  if (device && device->mig >= 0 && strcmp(device->uuid, mig_uuid[device->gpu][device->mig]))
    return NOT_FOUND;
  return OK;
}
#define CALL(handle, any_handle) \
  struct call call_ __attribute__((cleanup(leave))) = {0}; \
  int code_ = enter(&call_, __func__, handle, any_handle); \
  if (code_) return code_;
#define GPU(handle) CALL(handle, 1) struct device *d = (handle); (void)d;

#define ANSWER(function, type, otherwise, key) \
  API int function(void *h, type *out) { GPU(h) *out = (type)WHOLE(otherwise, "gpu%d." key, d->gpu); return OK; }
#define LACKS(function) API int function(void *h) { GPU(h) return UNSUPPORTED; }

/* Opening and closing. */

API int nvmlInitWithFlags(unsigned flags) {
  struct call call __attribute__((cleanup(leave))) = {0};
  pthread_mutex_lock(&lock);
  (void)flags;
  reload();
  trace("nvmlInit");
  if (WHOLE(0, "nvmlInit.ret")) return WHOLE(0, "nvmlInit.ret");
  if (opened++) return OK;
  generation++;
  epoch = WHOLE(0, "epoch");
  if (!integrated_to) integrated_to = now();
  for (int gpu = 0; gpu < GPUS; gpu++)
    for (int mig = -1; mig < MIGS; mig++)
      devices[generation % GENERATIONS][gpu][mig + 1] =
          (struct device){gpu, mig, generation, ""};
  return OK;
}
API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API int nvmlShutdown(void) {
  struct call call __attribute__((cleanup(leave))) = {0};
  pthread_mutex_lock(&lock);
  reload();
  trace("nvmlShutdown");
  if (!opened) return UNINITIALIZED;
  if (inside) trace("! nvmlShutdown with %d calls inside", inside);
  if (--opened) return OK;
  if (n_samples) trace("! nvmlShutdown with %d GPM samples held", n_samples);
  if (n_sets) trace("! nvmlShutdown with %d event sets held", n_sets);
  return OK;
}
API const char *nvmlErrorString(int code) { (void)code; return "an error of the fake library"; }

static int put(char *out, unsigned size, const char *value) {
  if (strlen(value) >= size) return SMALL;
  strcpy(out, value);
  return OK;
}
API int nvmlSystemGetDriverVersion(char *out, unsigned size) {
  CALL(NULL, 0)
  return put(out, size, get("580.95.05", "driver"));
}
API int nvmlSystemGetCudaDriverVersion(int *out) { CALL(NULL, 0) *out = 13000; return OK; }
API int nvmlSystemGetCudaDriverVersion_v2(int *out) { CALL(NULL, 0) *out = 13000; return OK; }
API int nvmlDeviceGetCount_v2(unsigned *out) { CALL(NULL, 0) *out = WHOLE(1, "count"); return OK; }
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
  CALL(NULL, 0)
  if (index >= GPUS || index >= WHOLE(1, "count")) return INVALID;
  if (WHOLE(0, "gpu%u.lost", index)) return LOST;
  struct device *device = &devices[generation % GENERATIONS][index][0];
  int code = steer("ret", __func__, device);
  if (code) return code;
  *out = device;
  return OK;
}

/* Who it is. */

API int nvmlDeviceGetUUID(void *h, char *out, unsigned size) {
  GPU(h)
  if (d->mig >= 0) return put(out, size, mig_uuid[d->gpu][d->mig]);
  char uuid[96];
  snprintf(uuid, sizeof uuid, "GPU-%08x-0000-4000-8000-000000000000", d->gpu);
  return put(out, size, get(uuid, "gpu%d.uuid", d->gpu));
}
API int nvmlDeviceGetName(void *h, char *out, unsigned size) {
  GPU(h)
  if (d->mig >= 0) return put(out, size, get("MIG 1g.10gb", "gpu%d.mig%d.name", d->gpu, d->mig));
  return put(out, size, get("NVIDIA H100 80GB HBM3", "gpu%d.name", d->gpu));
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
API int nvmlDeviceGetPciInfo_v3(void *h, struct pci *out) {
  GPU(h)
  memset(out, 0, sizeof *out);
  out->bus = 0x10 + d->gpu;
  snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
  return OK;
}
API int nvmlDeviceIsMigDeviceHandle(void *h, unsigned *out) { GPU(h) *out = d->mig >= 0; return OK; }
API int nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending) {
  GPU(h)
  if (!get(NULL, "gpu%d.mig", d->gpu)) return UNSUPPORTED;
  *current = *pending = WHOLE(0, "gpu%d.mig", d->gpu);
  return OK;
}
API int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *out) { GPU(h) *out = 7; return OK; }
API int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned index, void **out) {
  GPU(h)
  if (index >= MIGS || !mig_uuid[d->gpu][index][0]) return NOT_FOUND;
  struct device *found = &devices[generation % GENERATIONS][d->gpu][index + 1];
  snprintf(found->uuid, sizeof found->uuid, "%s", mig_uuid[d->gpu][index]);
  *out = found;
  return OK;
}
API int nvmlDeviceGetGpuInstanceId(void *h, unsigned *out) {
  GPU(h)
  if (d->mig < 0) return UNSUPPORTED;
  *out = WHOLE(d->mig + 1, "gpu%d.mig%d.gi", d->gpu, d->mig);
  return OK;
}

/* How it is. */

ANSWER(nvmlDeviceGetPowerUsage, unsigned, 632000, "power")
ANSWER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 700000, "power_limit")
ANSWER(nvmlDeviceGetPowerManagementLimit, unsigned, 700000, "power_limit")
ANSWER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, 5000000, "energy")
ANSWER(nvmlDeviceGetPcieReplayCounter, unsigned, 0, "replays")
ANSWER(nvmlDeviceGetFanSpeed, unsigned, 40, "fan")

API int nvmlDeviceGetUtilizationRates(void *h, unsigned *out) {
  GPU(h)
  if (d->mig >= 0 || WHOLE(0, "gpu%d.mig", d->gpu)) return UNSUPPORTED;
  out[0] = WHOLE(97, "gpu%d.util", d->gpu);
  out[1] = WHOLE(60, "gpu%d.memory_util", d->gpu);
  return OK;
}
static unsigned long long total(struct device *d) { return WHOLE(85520809984, "gpu%d.total", d->gpu); }
static unsigned long long used(struct device *d) {
  return d->mig < 0 ? WHOLE(74289512448, "gpu%d.used", d->gpu)
                    : WHOLE(1073741824, "gpu%d.mig%d.used", d->gpu, d->mig);
}
static const unsigned long long RESERVED = 666763264;
API int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *out) {
  GPU(h)
  if (WHOLE(0, "gpu%d.no_memory", d->gpu)) return UNSUPPORTED;
  out[0] = total(d);
  out[2] = used(d) + RESERVED;
  out[1] = out[0] - out[2];
  return OK;
}
API int nvmlDeviceGetTemperature(void *h, unsigned sensor, unsigned *out) {
  GPU(h)
  if (sensor) return INVALID;
  *out = WHOLE(59, "gpu%d.temperature", d->gpu);
  return OK;
}
API int nvmlDeviceGetTemperatureThreshold(void *h, unsigned which, unsigned *out) {
  GPU(h)
  if (which > 3) return UNSUPPORTED;
  *out = which == 2 ? 95 : 87;
  return OK;
}
API int nvmlDeviceGetClockInfo(void *h, unsigned domain, unsigned *out) {
  GPU(h)
  *out = domain == 2 ? WHOLE(2619, "gpu%d.memory_clock", d->gpu) : WHOLE(1980, "gpu%d.clock", d->gpu);
  return OK;
}
API int nvmlDeviceGetMaxClockInfo(void *h, unsigned domain, unsigned *out) {
  GPU(h)
  *out = domain == 2 ? 2619 : 1980;
  return OK;
}
API int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *out) {
  GPU(h)
  *out = WHOLE(0, "gpu%d.reasons", d->gpu);
  return OK;
}
API int nvmlDeviceGetTotalEccErrors(void *h, unsigned kind, unsigned counter, unsigned long long *out) {
  GPU(h)
  (void)counter;
  *out = kind ? WHOLE(0, "gpu%d.uncorrected", d->gpu) : WHOLE(0, "gpu%d.corrected", d->gpu);
  return OK;
}
API int nvmlDeviceGetRemappedRows(void *h, unsigned *corrected, unsigned *uncorrected,
                                  unsigned *pending, unsigned *failed) {
  GPU(h)
  *corrected = WHOLE(0, "gpu%d.rows", d->gpu);
  *uncorrected = WHOLE(0, "gpu%d.bad_rows", d->gpu);
  *pending = WHOLE(0, "gpu%d.remap_pending", d->gpu);
  *failed = WHOLE(0, "gpu%d.remap_failed", d->gpu);
  return OK;
}

/* What is slow, or of no use to us, but read by others. */

API int nvmlDeviceGetPcieThroughput(void *h, unsigned counter, unsigned *out) {
  GPU(h)
  (void)counter;
  pass(WHOLE(20, "pcie_ms"));
  *out = 1000;
  return OK;
}
API int nvmlDeviceGetEncoderUtilization(void *h, unsigned *out, unsigned *period) {
  GPU(h) *out = 0; *period = 1000; return OK;
}
API int nvmlDeviceGetDecoderUtilization(void *h, unsigned *out, unsigned *period) {
  GPU(h) *out = 0; *period = 1000; return OK;
}
API int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, void *out) {
  GPU(h) (void)out; *count = 0; return OK;
}
API int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *count, void *out) {
  GPU(h) (void)out; *count = 0; return OK;
}
API int nvmlDeviceGetProcessUtilization(void *h, void *out, unsigned *count, unsigned long long since) {
  GPU(h) (void)out; (void)since; *count = 0; return NOT_FOUND;
}
LACKS(nvmlDeviceGetConfComputeMemSizeInfo)
LACKS(nvmlDeviceGetRunningProcessDetailList)

/* Fields. */

struct field {
  unsigned id, scope;
  long long timestamp, latency;
  int type, ret;
  union { double d; unsigned u; unsigned long long ull; long long ll; int i; } value;
};
static int field_type(unsigned id) {
  switch (id) {
    case 82: case 230: return 1;
    case 74: case 76: case 197: case 198: case 202: case 204: return 3;
    case 138: case 139: return 3;
    case 269: case 270: case 271: return 3;
  }
  return -1;
}
API int nvmlDeviceGetFieldValues(void *h, int count, struct field *out) {
  GPU(h)
  for (int i = 0; i < count; i++) {
    unsigned id = out[i].id;
    const char *value = get(NULL, "gpu%d.field.%u", d->gpu, id);
    int type = (int)WHOLE(field_type(id), "gpu%d.field.%u.type", d->gpu, id);
    out[i].ret = steered ? WHOLE(0, "gpu%d.field.%u.ret", d->gpu, id) : 0;
    if (!out[i].ret && type < 0) out[i].ret = UNSUPPORTED;
    if ((id == 202 || id == 204) && !value) out[i].ret = UNSUPPORTED;
    if ((id == 138 || id == 139) && out[i].scope != 0xFFFFFFFF) out[i].ret = INVALID;
    if (out[i].ret) continue;
    if (!value) value = id == 82 ? "54" : "0";
    out[i].type = type;
    memset(&out[i].value, 0xAA, sizeof out[i].value); /* so that a wrong member shows */
    switch (type) {
      case 0: out[i].value.d = strtod(value, NULL); break;
      case 1: out[i].value.u = strtoul(value, NULL, 0); break;
      case 4: out[i].value.ll = strtoll(value, NULL, 0); break;
      case 5: out[i].value.i = strtol(value, NULL, 0); break;
      default: out[i].value.ull = strtoull(value, NULL, 0);
    }
  }
  return OK;
}

/* Events. */

struct set { int gpus; unsigned long long seen; };
struct event { void *device; unsigned long long type, data; unsigned gi, ci; };
API int nvmlEventSetCreate(void **out) {
  CALL(NULL, 0)
  struct set *set = calloc(1, sizeof *set);
  set->seen = WHOLE(0, "xids");
  n_sets++;
  *out = set;
  return OK;
}
API int nvmlEventSetFree(void *handle) {
  struct call call __attribute__((cleanup(leave))) = {0};
  pthread_mutex_lock(&lock);
  trace("nvmlEventSetFree");
  if (!opened) return trace("! nvmlEventSetFree before nvmlInit"), UNINITIALIZED;
  n_sets--;
  free(handle);
  return OK;
}
API int nvmlDeviceGetSupportedEventTypes(void *h, unsigned long long *out) {
  GPU(h)
  *out = 0x1F;
  return OK;
}
API int nvmlDeviceRegisterEvents(void *h, unsigned long long types, void *handle) {
  GPU(h)
  (void)types;
  ((struct set *)handle)->gpus |= 1 << d->gpu;
  return OK;
}
API int nvmlEventSetWait_v2(void *handle, struct event *out, unsigned ms) {
  CALL(NULL, 0)
  struct set *set = handle;
  unsigned step = ms < 20 ? 2 : 20;
  for (double until = wall() + ms / 1e3;; pass(step)) {
    while (set->seen < WHOLE(0, "xids")) {
      int gpu = 0, code = 0, gi = -1;
      sscanf(get("", "xid.%llu", ++set->seen), "%d:%d:%d", &gpu, &code, &gi);
      if (!(set->gpus >> gpu & 1)) continue;
      *out = (struct event){&devices[generation % GENERATIONS][gpu][0], 8, code, gi, -1};
      return OK;
    }
    if (epoch != WHOLE(0, "epoch")) return WHOLE(UNINITIALIZED, "epoch.ret");
    if (wall() >= until) return TIMEOUT;
  }
}

#ifndef OLD
/* Newer than R510, R520, R535, R565. */

struct memory { unsigned version; unsigned long long total, reserved, free, used; };
API int nvmlDeviceGetMemoryInfo_v2(void *h, struct memory *out) {
  GPU(h)
  if (WHOLE(0, "gpu%d.no_memory", d->gpu)) return UNSUPPORTED;
  if (out->version != (sizeof *out | 2 << 24)) return 25;
  out->total = total(d);
  out->used = used(d);
  out->reserved = RESERVED;
  out->free = out->total - out->used - out->reserved;
  return OK;
}
API int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *out) {
  GPU(h)
  *out = WHOLE(0, "gpu%d.reasons", d->gpu);
  return OK;
}
struct temperature { unsigned version, sensor; int value; };
API int nvmlDeviceGetTemperatureV(void *h, struct temperature *out) {
  GPU(h)
  out->value = WHOLE(59, "gpu%d.temperature", d->gpu);
  return OK;
}

struct sample { int filled, gpu; char who[96]; double at, integral[METRICS]; };
static struct sample *live[LIVE];
static int alive(struct sample *sample) {
  for (int i = 0; i < LIVE; i++)
    if (live[i] == sample) return i;
  return -1;
}
API int nvmlGpmQueryDeviceSupport(void *h, unsigned *out) {
  GPU(h)
  out[1] = WHOLE(1, "gpu%d.gpm", d->gpu);
  return OK;
}
API int nvmlGpmSampleAlloc(struct sample **out) {
  CALL(NULL, 0)
  int slot = alive(NULL);
  if (slot < 0) return trace("! more than %d GPM samples held", LIVE), 20;
  *out = live[slot] = calloc(1, sizeof **out);
  n_samples++;
  return OK;
}
API int nvmlGpmSampleFree(struct sample *sample) {
  struct call call __attribute__((cleanup(leave))) = {0};
  pthread_mutex_lock(&lock);
  trace("nvmlGpmSampleFree");
  if (!opened) return trace("! nvmlGpmSampleFree before nvmlInit"), UNINITIALIZED;
  int slot = sample ? alive(sample) : -1;
  if (slot < 0) return trace("! nvmlGpmSampleFree of no sample"), INVALID;
  live[slot] = NULL;
  n_samples--;
  free(sample);
  return OK;
}
static int fill(struct sample *sample, struct device *d, int mig) {
  if (!sample || alive(sample) < 0) return trace("! a GPM sample that is not held"), INVALID;
  if (!WHOLE(1, "gpu%d.gpm", d->gpu)) return UNSUPPORTED;
  integrate(now());
  sample->filled = 1;
  sample->gpu = d->gpu;
  sample->at = integrated_to;
  snprintf(sample->who, sizeof sample->who, "%d %s", d->gpu, mig < 0 ? "" : mig_uuid[d->gpu][mig]);
  memcpy(sample->integral, integral[d->gpu][mig + 1], sizeof sample->integral);
  return OK;
}
API int nvmlGpmSampleGet(void *h, struct sample *sample) { GPU(h) return fill(sample, d, -1); }
API int nvmlGpmMigSampleGet(void *h, unsigned gi, struct sample *sample) {
  GPU(h)
  if (d->mig >= 0) return trace("! nvmlGpmMigSampleGet of no parent"), INVALID;
  for (int mig = 0; mig < MIGS; mig++)
    if (mig_uuid[d->gpu][mig][0] && WHOLE(mig + 1, "gpu%d.mig%d.gi", d->gpu, mig) == gi)
      return fill(sample, d, mig);
  return INVALID;
}
struct metric { unsigned id; int ret; double value; const char *names[3]; };
struct request { unsigned version, count; struct sample *one, *two; struct metric metrics[]; };
API int nvmlGpmMetricsGet(struct request *request) {
  CALL(NULL, 0)
  struct sample *one = request->one, *two = request->two;
  if (request->version != 1) return 25;
  if (!one || !two || alive(one) < 0 || alive(two) < 0 || !one->filled || !two->filled)
    return trace("! nvmlGpmMetricsGet of what is no pair"), INVALID;
  if (strcmp(one->who, two->who)) trace("! nvmlGpmMetricsGet of two devices");
  double step = two->at - one->at;
  if (step < 0.0999) trace("! nvmlGpmMetricsGet over %.4f s", step);
  for (unsigned i = 0; i < request->count; i++) {
    struct metric *metric = &request->metrics[i];
    metric->ret = metric->id >= METRICS ? INVALID
        : steered ? (int)WHOLE(0, "gpu%d.gpm.%u.ret", two->gpu, metric->id) : 0;
    if (metric->ret) continue;
    metric->value = (two->integral[metric->id] - one->integral[metric->id]) / step;
    double present = gpm[two->gpu][0][metric->id];
    if (!isfinite(present)) metric->value = present;
  }
  return OK;
}
#endif
