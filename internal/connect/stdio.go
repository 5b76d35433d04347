package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// Preamble is what an agent writes first on its standard output. Anything else there
// (a banner, a shell profile that prints) would be taken for the protocol.
const Preamble = "gpu-agent/1\n"

// quoteTime is how long more of an unexpected text is waited for, and the end of who wrote it: a
// shell that finds no agent says so, and ends, on a busy host not at once.
const quoteTime = 2 * time.Second

// ServeStdio serves one connection on a standard input and output. It returns when the
// connection has ended, or ctx, and every call with it: a change in flight is put back
// first. The server should have been made with ServerOptions.
func ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser, server *grpc.Server) error {
	if _, err := io.WriteString(out, Preamble); err != nil {
		return fmt.Errorf("could not greet the client: %w", err)
	}
	only := &oneConn{link: newLink(Pipe(in, out))}
	stop := context.AfterFunc(ctx, func() { _ = only.Close() })
	defer stop()
	err := server.Serve(only)
	server.Stop() // waits for the calls
	if errors.Is(err, io.EOF) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// oneConn is a listener that accepts one connection and ends with it.
type oneConn struct {
	link *link
	used bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.used {
		l.used = true
		return l.link, nil
	}
	<-l.link.done
	return nil, io.EOF
}

func (l *oneConn) Close() error { return l.link.Close() }

func (l *oneConn) Addr() net.Addr { return l.link.LocalAddr() }

// overStdio is the client's side: it waits for the preamble and connects over the
// stream.
func overStdio(ctx context.Context, host string, r io.ReadCloser, w io.WriteCloser, ended ending, o Options) (*Conn, error) {
	stream := Pipe(r, w)
	if err := awaitPreamble(ctx, host, stream, ended, o.wait()); err != nil {
		_ = stream.Close() // the first error counts
		return nil, err
	}
	conn, err := overConn(ctx, host, stream, o)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == Ended {
		return nil, endedEarly(host, "", ended) // it may have said why
	}
	return conn, err
}

// awaitPreamble reads what the other end writes first.
func awaitPreamble(ctx context.Context, host string, stream net.Conn, ended ending, patience time.Duration) error {
	_ = stream.SetReadDeadline(time.Now().Add(patience)) // pipes in memory have deadlines
	stop := context.AfterFunc(ctx, func() { _ = stream.SetReadDeadline(time.Now()) })
	defer stop()

	// Not a byte more than the preamble may be read: what follows is the protocol's.
	got := make([]byte, 0, len(Preamble))
	for strings.HasPrefix(Preamble, string(got)) && len(got) < len(Preamble) {
		n, err := stream.Read(got[len(got):cap(got)])
		got = got[:len(got)+n]
		switch {
		case err == nil || !strings.HasPrefix(Preamble, string(got)):
			continue
		case ctx.Err() != nil:
			return &Error{Host: host, Code: Unreachable, Found: "the agent had not answered when the call was given up", Err: ctx.Err()}
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = stream.Close() // it may say what it waited for
			return silent(host, patience, ended)
		default:
			return endedEarly(host, string(got), ended)
		}
	}
	if string(got) == Preamble {
		if stream.SetReadDeadline(time.Time{}) != nil { // the stream has ended since
			return endedEarly(host, "", ended)
		}
		return nil
	}
	text, over := more(stream, got)
	if over {
		return endedEarly(host, text, ended)
	}
	return garbage(host, text)
}

// more reads what else comes soon, to quote it, and tells whether that was all.
func more(stream net.Conn, got []byte) (text string, over bool) {
	_ = stream.SetReadDeadline(time.Now().Add(quoteTime))
	rest, err := io.ReadAll(io.LimitReader(stream, 4*maxQuote)) // bytes; a character has at most four
	return string(got) + string(rest), err == nil && len(rest) < 4*maxQuote
}

func garbage(host, text string) *Error {
	found := "something else than gpu-agent answered; it printed " + quote(text, maxQuote)
	if before, _, ok := strings.Cut(text, Preamble); ok {
		found = "something printed " + quote(before, maxQuote) + " before gpu-agent answered"
	}
	return &Error{
		Host: host, Code: Garbage, Found: found,
		Fix: "make the shell's profile print only for terminals, keep banners out of a forced command, " +
			"or give sshd a `Subsystem gpu-agent`, which runs no shell profile of yours; and see that agent_path is a gpu-agent",
	}
}

func silent(host string, patience time.Duration, ended ending) *Error {
	e := &Error{
		Host: host, Code: Unreachable, Found: fmt.Sprintf("the agent did not answer within %s", patience),
		Fix: "look on the host what its login or its gpu-agent waits for",
	}
	if stderr, _, _ := ended(); strings.TrimSpace(stderr) != "" {
		e.Found += "; it said " + quote(strings.TrimSpace(stderr), maxTail)
	}
	return e
}
