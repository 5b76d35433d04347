//go:build linux && cgo

// Command client computes on a GPU, through CUDA's driver API alone, until its input ends: it
// takes the first GPU that it sees, tells what it has there, and takes memory.
//
//	client [-busy] MIB...
//
// Each MIB is one allocation. What it tells is one line of JSON, then one for each allocation.
// With -busy it writes to the last one as long as it runs.
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>

// The driver's API, by its ABI: https://docs.nvidia.com/cuda/cuda-driver-api/.
static void *lib;

static int load(void) { lib = dlopen("libcuda.so.1", RTLD_NOW); return lib != NULL; }
static const char *why(void) { return dlerror(); }

static int init(void) { return ((int (*)(unsigned))dlsym(lib, "cuInit"))(0); }
static int count(int *n) { return ((int (*)(int *))dlsym(lib, "cuDeviceGetCount"))(n); }
static int uuid(char *out, int dev) { return ((int (*)(char *, int))dlsym(lib, "cuDeviceGetUuid_v2"))(out, dev); }
static int attribute(int *out, int which, int dev) {
	return ((int (*)(int *, int, int))dlsym(lib, "cuDeviceGetAttribute"))(out, which, dev);
}
static int context(void **out, int dev) { return ((int (*)(void **, unsigned, int))dlsym(lib, "cuCtxCreate_v2"))(out, 0, dev); }
static int memory(size_t *available, size_t *total) {
	return ((int (*)(size_t *, size_t *))dlsym(lib, "cuMemGetInfo_v2"))(available, total);
}
static int take(unsigned long long *out, size_t bytes) {
	return ((int (*)(unsigned long long *, size_t))dlsym(lib, "cuMemAlloc_v2"))(out, bytes);
}
static int set(unsigned long long at, size_t bytes) {
	return ((int (*)(unsigned long long, unsigned char, size_t))dlsym(lib, "cuMemsetD8_v2"))(at, 1, bytes);
}
static int wait(void) { return ((int (*)(void))dlsym(lib, "cuCtxSynchronize"))(); }
*/
import "C"

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"strconv"
	"unsafe"
)

// seen is what a process sees of its first GPU.
type seen struct {
	GPUs            int    `json:"gpus"`
	UUID            string `json:"uuid"`
	Multiprocessors int    `json:"multiprocessors"`
	MemoryMiB       int    `json:"memory_mib"`
	AvailableMiB    int    `json:"available_mib"`
}

// taken is what came of an allocation: CUDA's result is 0, or 2 when there is no memory left.
type taken struct {
	MiB    int `json:"mib"`
	Result int `json:"result"`
}

// multiprocessorCount is CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.
const multiprocessorCount = 16

func main() {
	log.SetFlags(0)
	runtime.LockOSThread() // a context is a thread's
	if C.load() == 0 {
		log.Fatal(C.GoString(C.why()))
	}
	must("cuInit", C.init())
	var n, multiprocessors C.int
	must("cuDeviceGetCount", C.count(&n))
	if n == 0 {
		log.Fatal("CUDA shows no GPU")
	}
	var id [16]C.char
	must("cuDeviceGetUuid_v2", C.uuid(&id[0], 0))
	b := C.GoBytes(unsafe.Pointer(&id[0]), 16) //nolint:gocritic // It looks at what cgo makes of it.
	must("cuDeviceGetAttribute", C.attribute(&multiprocessors, multiprocessorCount, 0))
	var context unsafe.Pointer
	must("cuCtxCreate_v2", C.context(&context, 0)) //nolint:gocritic // as above
	var available, total C.size_t
	must("cuMemGetInfo_v2", C.memory(&available, &total))
	tell(seen{
		GPUs: int(n), UUID: fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]),
		Multiprocessors: int(multiprocessors), MemoryMiB: int(total >> 20), AvailableMiB: int(available >> 20),
	})
	busy := flag.Bool("busy", false, "")
	flag.Parse()
	write := func() {}
	for _, arg := range flag.Args() {
		mib, err := strconv.Atoi(arg)
		if err != nil {
			log.Fatal(err)
		}
		var at C.ulonglong
		size := C.size_t(mib) << 20
		result := C.take(&at, size)
		if result == 0 {
			write = func() {
				must("cuMemsetD8_v2", C.set(at, size))
				must("cuCtxSynchronize", C.wait())
			}
			write()
		}
		tell(taken{MiB: mib, Result: int(result)})
	}
	if !*busy {
		write = func() { select {} }
	}
	go func() {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}()
	for {
		write()
	}
}

func must(call string, result C.int) {
	if result != 0 {
		log.Fatalf("%s: CUDA error %d", call, int(result))
	}
}

func tell(v any) {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		log.Fatal(err)
	}
}
