package connect

import (
	"io"
	"time"

	"golang.org/x/crypto/ssh"
)

// session is one session channel with what its process says when it ends.
type session struct {
	ssh.Channel
	said   *tail
	exited chan struct{}
	exit   int
	known  bool
}

func newSession(channel ssh.Channel, requests <-chan *ssh.Request) *session {
	s := &session{Channel: channel, said: &tail{}, exited: make(chan struct{})}
	stderr := make(chan struct{})
	go func() {
		defer close(stderr)
		_, _ = io.Copy(s.said, channel.Stderr()) // it ends with the channel
	}()
	go func() {
		defer close(s.exited)
		for r := range requests {
			if r.Type == "exit-status" && len(r.Payload) >= 4 {
				var status struct{ Status uint32 }
				if ssh.Unmarshal(r.Payload, &status) == nil {
					s.exit, s.known = int(status.Status), true
				}
			}
			if r.WantReply {
				_ = r.Reply(false, nil) // the channel may be gone
			}
		}
		<-stderr
	}()
	return s
}

func (s *session) ended() (string, int, bool) {
	select {
	case <-s.exited:
		return s.said.String(), s.exit, s.known
	case <-time.After(exitGrace):
		return s.said.String(), 0, false
	}
}

// stdin is the channel as the process's standard input: closing it is an end of file.
func (s *session) stdin() io.WriteCloser { return channelInput{s.Channel} }

type channelInput struct{ ssh.Channel }

func (c channelInput) Close() error { return c.CloseWrite() }
