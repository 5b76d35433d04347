// Package gpu is the vocabulary of the project: hosts, GPUs, partitions, pools,
// virtual machines, what is wanted of them and who claims them. The words are
// those of Hyper-V and of NVIDIA's documentation. The package imports nothing
// of ours and does nothing by itself.
//
// Every type marshals to the snapshot format: the JSON that the data source
// gpu_inventory gives, that a simulated fleet is kept in, and that travels
// between the provider and a host. Memory is in bytes there; Terraform and
// people see MiB, rounded down.
package gpu
