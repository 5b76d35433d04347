package sharelayout

// What MPS and its parts are, for registry pages.
const (
	MPSText = "NVIDIA's Multi-Process Service (MPS) on Linux hosts: processes and containers compute on a GPU at the same time, each with a part of its multiprocessors and memory. " +
		"One control daemon per host serves all GPUs of the config, in the order of their ids. MPS is not a security boundary: a fault of one client can terminate the others."
	MPSInMIGText = "The Multi-Process Service inside of each GPU instance, with a control daemon for each. One of `mps` and `time_slicing` at most. The daemons are stopped when the config is destroyed or " +
		"no longer has `mps`, whatever `on_destroy` is."
	UserText      = "The id of the user whose processes may be clients of MPS. Exactly one of `uid` and `multi_user` is required: with MPS, processes of a second user would wait until those of the first have ended."
	MultiUserText = "`true` lets processes of all users be clients, who then share one MPS server."
	ThreadsText   = "The most of a device's multiprocessors that each client process may use, in percent: above 0, at most 100, with one digit after the point at most. It is a limit and reserves " +
		"nothing. Default: no limit. A share may hold its own processes to less."
	MemoryText = "The most memory, in MiB, that each client process may use on each device; two processes may use it twice. MPS takes whole GiB only from 1024 on. " +
		"Default: no limit."
	ComputeModeText         = "The compute mode of the GPUs: `exclusive_process` (the default), in which no process goes past MPS, or `default`. What it was is put back when a GPU leaves the config."
	ComputeModeInMIGText    = "Not supported inside `mig`."
	MPSOversubscriptionText = "How often the memory limits and the thread percentages of shares may add up to a device. Default `1`: shares never hold more than there is."
)

// What time-slicing and its parts are, for registry pages.
const (
	TimeSlicingText = "Time-slicing on Linux hosts: several workloads take turns on each GPU. Nothing holds one of them to its part of time or memory, and it is no security boundary. The compute " +
		"mode of the GPUs becomes `default`; it and the time slice are put back when a GPU leaves the config."
	TimeSlicingInMIGText = "Time-slicing inside of each GPU instance: several shares take turns on it. One of `mps` and `time_slicing` at most."
	IntervalText         = "How long a turn is: `default` (as the driver chooses), `short`, `medium` or `long`. NVIDIA does not say how long each is. Default `default`."
	IntervalInMIGText    = "Not supported inside `mig`."
	ReplicasText         = "How many shares each GPU takes, at least 2."
	ReplicasInMIGText    = "How many shares each GPU instance takes, at least 2."
	OversubscriptionText = "How often the memory limits of shares may add up to a device. Default `1`: shares never hold more than there is."
)
