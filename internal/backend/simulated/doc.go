// Package simulated is a fleet in one JSON file: hosts with Hyper-V, and Linux hosts
// with NVIDIA GPUs. It does what the real hosts are documented to do and knows none of
// our rules, so that a plan can be tried, and a rule proven wrong, without a GPU in
// reach.
//
// # The fleet file
//
// The file is in the snapshot format, the JSON that the data source gpu_inventory
// gives:
//
//	{
//	  "format": "gpu-fleet/v1",
//	  "hosts": [ { "name": "hv01", "platform": "hyperv", "gpus": [ ... ], "vms": [ ... ], "pools": [] } ]
//	}
//
// A recorded inventory is therefore a twin of its fleet to try a change on. Each host
// may carry two more objects: "agent", what the agent remembers between runs (its
// lease and its journal; claims stand in the host's own "claims"), and "simulation",
// described next. Fields that this version does not know are kept.
//
// # The simulation section
//
// Everything in it is optional. The type [Simulation] describes each field.
//
//	"simulation": {
//	  "unreachable": false,
//	  "latency_ms": { "start_vm": 1500, "any": 20 },
//	  "faults": [
//	    { "op": "start_vm", "object": "avd-01", "times": 1, "code": "insufficient",
//	      "detail": "0x800705AA", "moment": "before_effect" }
//	  ],
//	  "guests": { "3F2504E0-4F89-11D3-9A0C-0305E82C3301": { "locked": true, "shutdown_ms": 800 } },
//	  "gpus": { "PCIROOT(16)#PCI(0000)#PCI(0000)": { "needs_force": true, "count_after_reboot": 16 } },
//	  "units": { "nvidia-dcgm.service": { "holds_gpus": true } },
//	  "mps": { "start_fails": "no space left on device" },
//	  "load": [ { "gpu": "GPU-2e1d8b63-7b1f-4e1c-8c5f-1b2c3d4e5f02", "busy": 75 } ]
//	}
//
// # Many readers, many writers
//
// Every change runs under an exclusive lock on "<file>.lock" and replaces the file
// as a whole, so any number of processes may use one fleet and a reader never sees
// half a change. The lock's file goes with the lock, but on Windows. The fleet may also
// be edited by hand while it is in use, and be read where no lock file can be created.
//
// # Where the real behaviour is not documented
//
// A few answers of real hosts are not written anywhere. There the simulator does what
// package assumptions says; a comment at the place names the assumption.
package simulated
