package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"
)

// Preamble is what an agent writes first on its standard output. Anything else there
// (a banner, a shell profile that prints) would be taken for the protocol.
const Preamble = "gpu-agent/1\n"

const (
	// preambleTimeout bounds the time from the start of the agent to its first byte.
	preambleTimeout = 30 * time.Second
	// quoteTime is how long more of an unexpected text is waited for.
	quoteTime = 300 * time.Millisecond
	maxQuote  = 200
)

// ServeStdio serves one connection on a standard input and output. It returns when the
// connection has ended, or ctx, and every call with it: a change in flight is put back
// first. The server should have been made with ServerOptions.
func ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser, server *grpc.Server) error {
	if _, err := io.WriteString(out, Preamble); err != nil {
		return fmt.Errorf("could not greet the client: %w", err)
	}
	conn := Pipe(in, out)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	err := server.Serve(&oneConn{conn: &watched{Conn: conn, done: make(chan struct{})}})
	server.Stop() // waits for the calls
	if errors.Is(err, io.EOF) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// oneConn is a listener that accepts one connection and ends with it.
type oneConn struct {
	conn *watched
	used bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.used {
		l.used = true
		return l.conn, nil
	}
	<-l.conn.done
	return nil, io.EOF
}

func (l *oneConn) Close() error { return l.conn.Close() }

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// ending says how the process at the other end of a stream ended: what it wrote to
// its standard error, and its exit status if that is known.
type ending func() (stderr string, exit int, known bool)

// overStdio is the client's side: it waits for the preamble and connects over the
// stream.
func overStdio(ctx context.Context, host string, r io.ReadCloser, w io.WriteCloser, ended ending, o Options) (*Conn, error) {
	conn := Pipe(r, w)
	if err := awaitPreamble(ctx, host, conn, ended); err != nil {
		_ = conn.Close() // the first error counts
		return nil, err
	}
	return overConn(ctx, host, conn, o)
}

func awaitPreamble(ctx context.Context, host string, conn net.Conn, ended ending) error {
	ctx, cancel := context.WithTimeout(ctx, preambleTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	var got []byte
	b := make([]byte, 1)
	for len(got) < len(Preamble) {
		if _, err := io.ReadFull(conn, b); err != nil {
			if len(got) > 0 {
				return garbage(host, string(got))
			}
			if ctx.Err() != nil {
				return &Error{Host: host, Kind: Unreachable, Found: fmt.Sprintf("the agent did not answer within %s", preambleTimeout), Err: ctx.Err(),
					Fix: "look on the host what its login or its gpu-agent waits for"}
			}
			return endedEarly(host, ended)
		}
		got = append(got, b[0])
		if !strings.HasPrefix(Preamble, string(got)) {
			return garbage(host, string(got)+more(conn))
		}
	}
	return nil
}

// more reads what else comes soon, to quote it.
func more(conn net.Conn) string {
	end := time.AfterFunc(quoteTime, func() { _ = conn.Close() })
	defer end.Stop()
	text, _ := io.ReadAll(io.LimitReader(conn, maxQuote))
	return string(text)
}

func garbage(host, text string) *Error {
	return &Error{
		Host: host, Kind: Garbage,
		Found: fmt.Sprintf("something else than gpu-agent answered; it printed %q", printable(text)),
		Fix: "make the shell's profile print only for terminals, keep banners out of a forced command, " +
			"or give sshd a `Subsystem gpu-agent`, which runs no shell profile of yours; and see that agent_path is a gpu-agent",
	}
}

// printable cuts a text to what may be quoted in a message.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '.'
	}, strings.ToValidUTF8(text, "."))
	if r := []rune(text); len(r) > maxQuote {
		return string(r[:maxQuote]) + "..."
	}
	return text
}
