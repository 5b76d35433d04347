// Package fakewmi is the WMI service of one Hyper-V host, for tests. It answers as
// the documentation says that a real host does, down to the codes of its refusals, and
// is as strict: a query with a property that the class does not have fails, a
// parameter of the wrong type too, settings that Hyper-V would not take are not taken,
// and what takes a real host time becomes visible only after a while.
//
// Behind it is a host of a simulated fleet, whose file holds all that lasts. A test
// changes the fleet to bring about what others do to a host. What a fleet has no word
// for, a [Machine] has methods to bring about: access denied, the service gone, an old
// build of Windows, jobs that are slow or fail.
//
// There are two ways in: [Machine.WMI] is the seam of package hyperv, and package
// comserver serves a machine through COM.
package fakewmi
