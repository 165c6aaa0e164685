/* libnvidia-ml.so.1 that tells of eight GPUs which do not exist; compute capability, name and memory come from
 * QCS_FAKED_GPU="major.minor|name|bytes". It is what vLLM's own platform detection asks, so vLLM itself needs no
 * patch to believe in them. Struct layouts and return values are NVML's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS 0
#define NOT_FOUND 6
#define NOT_SUPPORTED 3
#define GPUS 8

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2_t;

static int major_, minor_;
static char name_[96];
static unsigned long long bytes_;

static void *handle_of(unsigned int index) { return (void *)(unsigned long)(index + 1); }
static unsigned int index_of(void *handle) { return (unsigned int)(unsigned long)handle - 1; }

int nvmlInit_v2(void) {
    const char *told = getenv("QCS_FAKED_GPU");
    if (!told || sscanf(told, "%d.%d|%95[^|]|%llu", &major_, &minor_, name_, &bytes_) != 4) return NOT_FOUND;
    return SUCCESS;
}
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "faked NVML: not supported"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = GPUS; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    if (index >= GPUS) return NOT_FOUND;
    *handle = handle_of(index);
    return SUCCESS;
}
int nvmlDeviceGetIndex(void *handle, unsigned int *index) { *index = index_of(handle); return SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    (void)handle;
    *major = major_;
    *minor = minor_;
    return SUCCESS;
}
int nvmlDeviceGetName(void *handle, char *name, unsigned int length) {
    (void)handle;
    snprintf(name, length, "%s", name_);
    return SUCCESS;
}
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned int length) {
    snprintf(uuid, length, "GPU-faked-%u", index_of(handle));
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    (void)handle;
    *memory = (memory_t){bytes_, bytes_, 0};
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory) {
    (void)handle;
    memory->total = memory->free = bytes_;
    memory->reserved = memory->used = 0;
    return SUCCESS;
}
int nvmlDeviceGetP2PStatus(void *a, void *b, int kind, int *status) {
    (void)a, (void)b, (void)kind;
    *status = 0;
    return SUCCESS;
}
int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    snprintf(version, length, "0.0-faked");
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return SUCCESS; }
