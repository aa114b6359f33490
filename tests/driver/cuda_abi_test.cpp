// Our declarations of the driver's ABI against NVIDIA's own header, where it is installed.
#include <chorale/driver/cuda.hpp>

#include <boost/test/unit_test.hpp>

#if CHORALE_TEST_CUDA_HEADER
#include <cuda.h>

using namespace chorale::cuda;

#define SAME_PLACE(ours, theirs, our_member, their_member) \
  static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member))

static_assert(sizeof(memory_properties) == sizeof(CUmemAllocationProp));
SAME_PLACE(memory_properties, CUmemAllocationProp, handle_types, requestedHandleTypes);
SAME_PLACE(memory_properties, CUmemAllocationProp, location, location);
SAME_PLACE(memory_properties, CUmemAllocationProp, platform_data, win32HandleMetaData);
SAME_PLACE(memory_properties, CUmemAllocationProp, flags, allocFlags);
static_assert(sizeof(memory_access) == sizeof(CUmemAccessDesc));
SAME_PLACE(memory_access, CUmemAccessDesc, flags, flags);
static_assert(sizeof(launch_config) == sizeof(CUlaunchConfig));
SAME_PLACE(launch_config, CUlaunchConfig, block_x, blockDimX);
SAME_PLACE(launch_config, CUlaunchConfig, shared_bytes, sharedMemBytes);
SAME_PLACE(launch_config, CUlaunchConfig, on, hStream);
SAME_PLACE(launch_config, CUlaunchConfig, attributes, attrs);
SAME_PLACE(launch_config, CUlaunchConfig, attribute_count, numAttrs);

static_assert(sizeof(device_pointer) == sizeof(CUdeviceptr));
static_assert(sizeof(memory_handle) == sizeof(CUmemGenericAllocationHandle));
static_assert(error_out_of_memory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(error_not_ready == CUDA_ERROR_NOT_READY);
static_assert(static_cast<int>(device_attribute::multiprocessor_count) ==
              CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(static_cast<int>(device_attribute::compute_capability_major) ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(static_cast<int>(device_attribute::compute_capability_minor) ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(static_cast<int>(device_attribute::virtual_memory_management) ==
              CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(static_cast<int>(device_attribute::posix_file_descriptor_handles) ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(static_cast<int>(peer_attribute::access_supported) == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED);
static_assert(static_cast<int>(peer_attribute::native_atomics) ==
              CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
static_assert(location_device == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(allocation_pinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(handle_posix_fd == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(access_read_write == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(host_alloc_portable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(host_alloc_mapped == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(stream_non_blocking == CU_STREAM_NON_BLOCKING);
static_assert(event_no_timing == CU_EVENT_DISABLE_TIMING);
static_assert(wait_value_geq == CU_STREAM_WAIT_VALUE_GEQ);
static_assert(capture_active == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(capture_mode_relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(function_max_dynamic_shared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(granularity_minimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);

BOOST_AUTO_TEST_CASE(the_declared_abi_is_that_of_the_cuda_header) { BOOST_TEST(CUDA_VERSION >= 12030); }
#else
BOOST_AUTO_TEST_CASE(the_declared_abi_is_that_of_the_cuda_header, *boost::unit_test::disabled()) {}
#endif
