package comserver

import (
	"sync"
	"sync/atomic"
)

// gate is held open by what is asked of a machine, and closed while it hangs.
var gate sync.RWMutex

// Hang makes whatever is asked of the machine wait until resume is called, as a
// provider that hangs does.
func Hang() (resume func()) {
	gate.Lock()
	return sync.OnceFunc(gate.Unlock)
}

// restarts counts how often the service was restarted.
var restarts atomic.Int64

// Restart is a restart of the WMI service: sessions that were opened before are lost.
func Restart() { restarts.Add(1) }

// apart asks the machine on a goroutine of its own: on the caller's, which is one
// that has called into COM, there is little room.
func apart[T any](f func() (T, error)) (out T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		gate.RLock()
		defer gate.RUnlock()
		out, err = f()
	}()
	<-done
	return out, err
}
