// Package cdi hands shares of GPUs to containers through the Container Device Interface,
// which Docker, Podman, containerd, CRI-O and Kubernetes read:
//
//	docker run --device gpufleet.com/share=team-a-0 ...
//
// Each share is a device in a specification of its own below /var/run/cdi. It has the
// device nodes of the share's GPUs or MIG devices, the environment that holds CUDA to the
// share, and the directories of its MPS daemon. The driver's libraries come from the
// specification that NVIDIA's container toolkit keeps of the host: its edits for the same
// GPU are copied in. On a host without it a container asks for both devices, or brings
// the libraries along.
//
// /var/run is empty after a boot, and the toolkit writes its specification again with each
// driver: writing a share again brings its own up to date, and changes nothing otherwise.
package cdi
