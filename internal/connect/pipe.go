package connect

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Pipe makes a connection of a reader and a writer, such as the standard input and
// output of a process. Closing it ends a Read in progress even where closing the
// reader does not, as with a blocking file.
func Pipe(r io.ReadCloser, w io.WriteCloser) net.Conn {
	in, feed := io.Pipe()
	p := &pipe{r: r, w: w, in: in, closed: make(chan struct{})}
	go func() {
		_, err := io.Copy(feed, r)
		feed.CloseWithError(err) // nil gives EOF
	}()
	return p
}

type pipe struct {
	r      io.ReadCloser
	w      io.WriteCloser
	in     *io.PipeReader
	once   sync.Once
	closed chan struct{}
	err    error
}

func (p *pipe) Read(b []byte) (int, error) { return p.in.Read(b) }

func (p *pipe) Write(b []byte) (int, error) { return p.w.Write(b) }

func (p *pipe) Close() error {
	p.once.Do(func() {
		close(p.closed)
		p.err = errors.Join(p.w.Close(), p.in.Close(), p.r.Close())
	})
	return p.err
}

func (p *pipe) LocalAddr() net.Addr { return pipeAddr{} }

func (p *pipe) RemoteAddr() net.Addr { return pipeAddr{} }

// Deadlines are not needed: what waits on the connection has a context, and closing
// the connection ends every call.
func (p *pipe) SetDeadline(time.Time) error { return nil }

func (p *pipe) SetReadDeadline(time.Time) error { return nil }

func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "stdio" }

func (pipeAddr) String() string { return "stdio" }
