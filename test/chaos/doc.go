// Package chaos shakes three Terraform states on one simulated fleet: random operations of
// a real CLI with the real provider and real agents, of which any process is killed or
// stopped at random, while other hands change the fleet. After each phase everything has
// to be as the three configurations say, and after the last one as at the beginning.
//
// `make chaos` runs it.
package chaos
