// Package utilization says how much of a GPU is given out, how much of that is used, and
// what could be given out otherwise. It only calculates: two readings of a GPU, a few
// seconds apart, come from the host's driver, and the long view from a server that kept
// DCGM's metrics (package dcgm).
//
// Its advice is conservative. It takes the higher of two readings, says nothing about what
// was not measured, keeps half as much again in reserve, and names the time it rests on.
package utilization
