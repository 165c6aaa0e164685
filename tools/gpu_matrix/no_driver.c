/* libcuda.so.1 for a machine without a GPU: lets vLLM's extensions load, and answers every call with
 * CUDA_ERROR_NO_DEVICE. Nothing can be allocated or launched through it.
 *
 * The names are those that the wheels' libraries leave undefined and bind when they are loaded. */
#define NO_DEVICE 100
#define REFUSE(name) \
    int name(void) { return NO_DEVICE; }

REFUSE(cuInit)
REFUSE(cuDriverGetVersion)
REFUSE(cuGetErrorString)
REFUSE(cuGetErrorName)
REFUSE(cuGetProcAddress_v2)
REFUSE(cuGetExportTable)
REFUSE(cuDeviceGet)
REFUSE(cuDeviceGetCount)
REFUSE(cuDeviceGetAttribute)
REFUSE(cuDeviceGetName)
REFUSE(cuDevicePrimaryCtxRetain)
REFUSE(cuDevicePrimaryCtxRelease_v2)
REFUSE(cuDevicePrimaryCtxGetState)
REFUSE(cuCtxGetCurrent)
REFUSE(cuCtxSetCurrent)
REFUSE(cuCtxGetDevice)
REFUSE(cuPointerGetAttribute)
REFUSE(cuTensorMapEncodeTiled)
REFUSE(cuMemCreate)
REFUSE(cuMemRelease)
REFUSE(cuMemMap)
REFUSE(cuMemUnmap)
REFUSE(cuMemSetAccess)
REFUSE(cuMemAddressReserve)
REFUSE(cuMemAddressFree)
REFUSE(cuMemGetAllocationGranularity)
REFUSE(cuModuleLoadData)
REFUSE(cuModuleLoadDataEx)
REFUSE(cuModuleUnload)
REFUSE(cuModuleGetFunction)
REFUSE(cuFuncSetAttribute)
REFUSE(cuLaunchKernel)
REFUSE(cuLaunchKernelEx)
