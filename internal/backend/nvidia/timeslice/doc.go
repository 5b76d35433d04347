// Package timeslice sets how long a process may compute on a GPU before the next one's
// turn comes.
//
// NVML has no function for it: nvidia-smi sets it, and this package runs nvidia-smi. The
// interval holds for whole GPUs and until the driver is unloaded, so that whoever declared
// it sets it again after a boot. Processes take turns only in compute mode DEFAULT, which
// is set through NVML before: in EXCLUSIVE_PROCESS there is one process, and so no turns.
//
// Time-slicing separates neither memory nor faults.
package timeslice
