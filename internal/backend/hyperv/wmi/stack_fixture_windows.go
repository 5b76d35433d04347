//go:build wmifixture

package wmi

import "runtime"

// onStack runs f where the goroutine's stack does not move. go-ole hands addresses on
// the stack to COM as plain numbers. The stand-in's objects are written in Go and so
// run on this very goroutine: a stack that grew or shrank under them would leave those
// numbers dangling. The frame makes the stack too large to grow, and too full to be
// shrunk. Windows' own objects have a stack of their own.
func onStack(f func()) {
	var frame [72 << 10]byte
	f()
	runtime.KeepAlive(&frame)
}
