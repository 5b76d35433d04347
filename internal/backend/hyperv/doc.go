// Package hyperv is the backend of Windows hosts with Hyper-V: GPU partitioning,
// Discrete Device Assignment, resource pools and failover clusters, all through WMI.
//
// The package itself runs everywhere: what it asks of a host goes through the seam
// WMI. On Windows package wmi answers it with github.com/microsoft/wmi; in tests
// package fakewmi does, with a host that behaves as the documentation says.
package hyperv
