// Package wmi answers hyperv.WMI with the WMI service of the local host, through
// github.com/microsoft/wmi. It exists on Windows only.
//
// The library connects, queries and holds instances. What it leaves to its users is
// done here: its caches keep dead sessions and are not safe for concurrent use, so
// each connection has sessions of its own, which are opened on demand and replaced
// when the service has gone; its enumerators take an error for the end of the rows;
// its methods drop the error of a parameter that does not exist; and both it and
// go-ole panic on what they do not expect.
package wmi
