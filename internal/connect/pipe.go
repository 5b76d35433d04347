package connect

import (
	"io"
	"net"
	"sync"
	"time"
)

// flushTime is how long closing a pipe waits for what was written already.
const flushTime = time.Second

// Pipe makes a connection of a reader and a writer, such as the standard input and
// output of a process. Closing it ends a Read or a Write in progress even where closing
// the file does not, as with a blocking one: gRPC waits for both.
func Pipe(r io.ReadCloser, w io.WriteCloser) net.Conn {
	near, far := net.Pipe()
	p := &pipe{Conn: near, r: r, w: w, flushed: make(chan struct{})}
	go func() {
		_, _ = io.Copy(far, r) // however it failed, the stream has ended
		_ = far.Close()
	}()
	go func() {
		defer close(p.flushed)
		_, _ = io.Copy(w, far)
		_ = far.Close()
	}()
	return p
}

type pipe struct {
	net.Conn
	r       io.ReadCloser
	w       io.WriteCloser
	flushed chan struct{}
	once    sync.Once
}

func (p *pipe) Close() error {
	p.once.Do(func() {
		_ = p.Conn.Close() // a pipe in memory
		select {
		case <-p.flushed:
		case <-time.After(flushTime):
		}
		// The process at the other end may have closed its ends.
		_, _ = p.w.Close(), p.r.Close()
	})
	return nil
}
