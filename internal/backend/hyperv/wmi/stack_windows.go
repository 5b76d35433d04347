//go:build !wmifixture

package wmi

// onStack runs f, which calls COM, on this goroutine.
func onStack(f func()) { f() }
