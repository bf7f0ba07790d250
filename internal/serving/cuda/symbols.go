package cuda

// A function of the driver is an index of symbols.
type function int

const (
	cuInit function = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuCtxGetDevice
	cuCtxSynchronize
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemFreeHost
	cuMemcpyHtoD
	cuMemcpyDtoH
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemsetD8Async
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamWaitEvent
	cuStreamBeginCapture
	cuStreamEndCapture
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventSynchronize
	cuEventQuery
	cuEventElapsedTime
	cuGraphInstantiateWithFlags
	cuGraphLaunch
	cuGraphExecDestroy
	cuGraphDestroy
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuFuncGetAttribute
	cuFuncSetAttribute
	cuLaunchKernel
	functions
)

// symbols lists the names that the library exports. If the parameters of a function have changed, its
// name ends in a version; in cuda.h, the plain name means the newest version.
var symbols = [functions]string{
	cuInit:                      "cuInit",
	cuDriverGetVersion:          "cuDriverGetVersion",
	cuGetErrorName:              "cuGetErrorName",
	cuGetErrorString:            "cuGetErrorString",
	cuDeviceGetCount:            "cuDeviceGetCount",
	cuDeviceGet:                 "cuDeviceGet",
	cuDeviceGetName:             "cuDeviceGetName",
	cuDeviceTotalMem:            "cuDeviceTotalMem_v2",
	cuDeviceGetAttribute:        "cuDeviceGetAttribute",
	cuDevicePrimaryCtxRetain:    "cuDevicePrimaryCtxRetain",
	cuDevicePrimaryCtxRelease:   "cuDevicePrimaryCtxRelease_v2",
	cuCtxSetCurrent:             "cuCtxSetCurrent",
	cuCtxGetDevice:              "cuCtxGetDevice",
	cuCtxSynchronize:            "cuCtxSynchronize",
	cuMemGetInfo:                "cuMemGetInfo_v2",
	cuMemAlloc:                  "cuMemAlloc_v2",
	cuMemFree:                   "cuMemFree_v2",
	cuMemHostAlloc:              "cuMemHostAlloc",
	cuMemFreeHost:               "cuMemFreeHost",
	cuMemcpyHtoD:                "cuMemcpyHtoD_v2",
	cuMemcpyDtoH:                "cuMemcpyDtoH_v2",
	cuMemcpyHtoDAsync:           "cuMemcpyHtoDAsync_v2",
	cuMemcpyDtoHAsync:           "cuMemcpyDtoHAsync_v2",
	cuMemcpyDtoDAsync:           "cuMemcpyDtoDAsync_v2",
	cuMemsetD8Async:             "cuMemsetD8Async",
	cuStreamCreate:              "cuStreamCreate",
	cuStreamDestroy:             "cuStreamDestroy_v2",
	cuStreamSynchronize:         "cuStreamSynchronize",
	cuStreamWaitEvent:           "cuStreamWaitEvent",
	cuStreamBeginCapture:        "cuStreamBeginCapture_v2",
	cuStreamEndCapture:          "cuStreamEndCapture",
	cuEventCreate:               "cuEventCreate",
	cuEventDestroy:              "cuEventDestroy_v2",
	cuEventRecord:               "cuEventRecord",
	cuEventSynchronize:          "cuEventSynchronize",
	cuEventQuery:                "cuEventQuery",
	cuEventElapsedTime:          "cuEventElapsedTime",
	cuGraphInstantiateWithFlags: "cuGraphInstantiateWithFlags",
	cuGraphLaunch:               "cuGraphLaunch",
	cuGraphExecDestroy:          "cuGraphExecDestroy",
	cuGraphDestroy:              "cuGraphDestroy",
	cuModuleLoadDataEx:          "cuModuleLoadDataEx",
	cuModuleUnload:              "cuModuleUnload",
	cuModuleGetFunction:         "cuModuleGetFunction",
	cuFuncGetAttribute:          "cuFuncGetAttribute",
	cuFuncSetAttribute:          "cuFuncSetAttribute",
	cuLaunchKernel:              "cuLaunchKernel",
}

// Attributes of a device (CUdevice_attribute of cuda.h).
const (
	attributeMultiprocessors = 16
	attributeMajor           = 75
	attributeMinor           = 76
	attributeSharedMemory    = 97 // the most that a block may have, if the kernel asks for it
)

// Attributes of a kernel (CUfunction_attribute).
const (
	kernelMaxThreads    = 0
	kernelSharedBytes   = 1
	kernelLocalBytes    = 3
	kernelRegisters     = 4
	kernelDynamicShared = 8

	// The part of a multiprocessor's memory for both that is shared memory, in percent; the rest is the L1 cache.
	kernelSharedCarveout = 9
)

// Options of the compiler (CUjit_option).
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
)

// The largest numbers of blocks of a launch ("Technical Specifications per Compute Capability" in the CUDA
// programming guide).
const (
	maxBlocksX  = 1<<31 - 1
	maxBlocksYZ = 1<<16 - 1
)

const (
	streamNonBlocking    = 1 // does not wait for the default stream
	eventBlockingSync    = 1 // a thread that waits sleeps
	eventDisableTiming   = 2
	hostAllocPortable    = 1
	captureThreadLocal   = 1 // other threads may allocate meanwhile
	statusOutOfMemory    = 2
	statusNoDevice       = 100
	statusNoBinaryForGPU = 209
	statusUnsupportedPTX = 222
	statusInvalidContext = 201
	statusNotReady       = 600

	statusStubLibrary        = 34  // CUDA_ERROR_STUB_LIBRARY
	statusDeviceUnavailable  = 46  // CUDA_ERROR_DEVICE_UNAVAILABLE
	statusSystemNotReady     = 802 // CUDA_ERROR_SYSTEM_NOT_READY
	statusDriverMismatch     = 803 // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
	statusCompatNotSupported = 804 // CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
	statusUnknown            = 999 // CUDA_ERROR_UNKNOWN

	oldestComputeMajor    = 8
	oldestDriver          = 11040 // reads PTX 7.4
	oldestDriverOfRelease = "470" // NVIDIA's name for the first driver with CUDA 11.4
)
