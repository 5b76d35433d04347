/*
 * system.c: initialisation, versions and error texts.
 */
#include "call.h"

#include <stdio.h>

static nvmlReturn_t init(const char *function) {
  nvmlReturn_t r = begin_uninitialized(function);
  if (r == NVML_SUCCESS) r = the_machine()->init_error;
  if (r == NVML_SUCCESS) nvml_opened();
  return end(r);
}

nvmlReturn_t nvmlInit(void) { return init(__func__); }
nvmlReturn_t nvmlInit_v2(void) { return init(__func__); }

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  (void)flags;
  return init(__func__);
}

nvmlReturn_t nvmlShutdown(void) {
  nvmlReturn_t r = begin_uninitialized(__func__);
  if (r == NVML_SUCCESS) r = nvml_closed();
  return end(r);
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = put_text(version, length, the_machine()->driver);
  return end(r);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = put_text(version, length, the_machine()->nvml);
  return end(r);
}

static nvmlReturn_t cuda_version(const char *function, int *version) {
  nvmlReturn_t r = begin(function);
  if (r == NVML_SUCCESS && !version) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS) *version = the_machine()->cuda;
  return end(r);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return cuda_version(__func__, version); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuda_version(__func__, version); }

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
  nvmlReturn_t r = begin(__func__);
  if (r != NVML_SUCCESS) return end(r);
  EACH(process, p) if (p->pid == pid) return end(put_text(name, length, p->name));
  return end(NVML_ERROR_NOT_FOUND);
}

/* The texts are those of the real library, where it was seen to print them. */
const char *nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
  case NVML_SUCCESS: return "Success";
  case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
  case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
  case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
  case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
  case NVML_ERROR_NOT_FOUND: return "Not Found";
  case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
  case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
  case NVML_ERROR_TIMEOUT: return "Timeout";
  case NVML_ERROR_LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
  case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
  case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
  case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
  case NVML_ERROR_OPERATING_SYSTEM: return "The operating system has blocked the request.";
  case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
  case NVML_ERROR_IN_USE: return "In use by another client";
  case NVML_ERROR_MEMORY: return "Insufficient Memory";
  case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
  case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
  default: return "Unknown Error";
  }
}

/* fakenvml_unsupported is what every function of nvml.h that has no other body does. */
nvmlReturn_t fakenvml_unsupported(const char *function) {
  nvmlReturn_t r = begin(function);
  return end(r == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : r);
}
