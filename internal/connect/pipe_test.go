package connect_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// deaf is a stream whose other end never answers, and that closing does not disturb, as
// with a blocking file.
type deaf struct{ never chan struct{} }

func (d deaf) Read([]byte) (int, error) { <-d.never; return 0, io.EOF }

func (d deaf) Write([]byte) (int, error) { <-d.never; return 0, io.ErrClosedPipe }

func (d deaf) Close() error { return nil }

// TestPipeCloses checks that closing a pipe ends a Read and a Write in progress, even
// where closing the stream does not: gRPC waits for both.
func TestPipeCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deaf{never: make(chan struct{})}
		defer close(d.never)
		pipe := connect.Pipe(d, d)
		ended := make(chan error, 2)
		go func() { _, err := pipe.Read(make([]byte, 1)); ended <- err }()
		go func() {
			_, err := pipe.Write([]byte("1"))
			if err == nil {
				_, err = pipe.Write([]byte("2")) // the first one is on its way
			}
			ended <- err
		}()
		synctest.Wait()
		if err := pipe.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			select {
			case err := <-ended:
				if err == nil {
					t.Error("it succeeded on a closed pipe")
				}
			case <-time.After(patience):
				t.Fatal("closing the pipe did not end what was in progress")
			}
		}
	})
}

// TestPipeDelivers checks that what was written before the pipe was closed arrives, and
// then the end.
func TestPipeDelivers(t *testing.T) {
	in, _ := io.Pipe()
	out, w := io.Pipe()
	pipe := connect.Pipe(in, w)
	go func() {
		_, _ = pipe.Write([]byte("the last words"))
		_ = pipe.Close()
	}()
	got, err := io.ReadAll(out)
	if err != nil || string(got) != "the last words" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestServeStdioEnds checks that an agent ends with its connection, whichever way that
// ends, and greets first.
func TestServeStdioEnds(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(in io.Closer, out io.Closer)
	}{
		{"its input ends", func(in, _ io.Closer) { _ = in.Close() }},
		{"its output is closed", func(_, out io.Closer) { _ = out.Close() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			agentIn, toAgent := io.Pipe()
			fromAgent, agentOut := io.Pipe()
			served := make(chan error, 1)
			go func() {
				served <- connect.ServeStdio(t.Context(), agentIn, agentOut, grpc.NewServer(connect.ServerOptions(time.Second)...))
			}()
			greeting := make([]byte, len(connect.Preamble))
			if _, err := io.ReadFull(fromAgent, greeting); err != nil || string(greeting) != connect.Preamble {
				t.Errorf("it says %q, %v", greeting, err)
			}
			test.end(toAgent, fromAgent)
			select {
			case err := <-served:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Error("it still serves")
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		agentIn, _ := io.Pipe()
		fromAgent, agentOut := io.Pipe()
		_ = fromAgent.Close()
		if err := connect.ServeStdio(t.Context(), agentIn, agentOut, grpc.NewServer()); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v, want the error of the stream", err)
		}
	})
}
