package fakemps

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mpsServer is a server as the daemon knows it.
type mpsServer struct {
	pid     int
	user    int
	threads float64
	limits  map[int]string
	clients map[int]net.Conn
	closing bool // it takes no more clients
	process *os.Process
}

func (d *daemon) server(pid int) *mpsServer {
	for _, s := range d.servers {
		if s.pid == pid {
			return s
		}
	}
	return nil
}

func (d *daemon) clients() int {
	n := 0
	for _, s := range d.servers {
		n += len(s.clients)
	}
	return n
}

// startServer starts the server of a user. Without a GPU it ends at once, of which only
// the log tells.
func (d *daemon) startServer(uid int) *mpsServer {
	cmd := command(d.me.sibling(serverName))
	if err := cmd.Start(); err != nil {
		d.say("Failed to start server: %v", err)
		return nil
	}
	pid := cmd.Process.Pid
	d.say("Starting new server %d for user %d", pid, uid)
	s := &mpsServer{pid: pid, user: uid, threads: d.threads, limits: maps.Clone(d.limits), clients: map[int]net.Conn{}, process: cmd.Process}
	if d.b.GPU {
		d.servers = append(d.servers, s)
		d.say("NEW SERVER %d: Ready", pid)
	}
	go func() {
		status := 1
		if cmd.Wait() == nil {
			status = 0
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.failed = d.failed || status != 0
		d.say("Server %d exited with status %d", pid, status)
		d.forget(s)
	}()
	return s
}

// endServer ends a server with its clients.
func (d *daemon) endServer(s *mpsServer) {
	_ = s.process.Signal(syscall.SIGTERM) // it may have ended already
	d.forget(s)
}

func (d *daemon) forget(s *mpsServer) {
	for _, c := range s.clients {
		c.Close()
	}
	d.servers = slices.DeleteFunc(d.servers, func(other *mpsServer) bool { return other == s })
	d.changed.Broadcast()
}

// client is a CUDA process. Another user's waits until the server has no clients left.
func (d *daemon) client(c net.Conn, in *bufio.Reader, uid, pid int) {
	d.mu.Lock()
	d.say("User did not send valid credentials") // it does, and drivers say so of each
	if d.static && !slices.ContainsFunc(d.partitions, func(p partition) bool { return d.computes(pid, p) }) {
		d.say("Client %d: CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", pid)
		d.mu.Unlock()
		return
	}
	var mine *mpsServer
	for mine == nil {
		if d.quitting {
			d.mu.Unlock()
			return
		}
		for _, s := range d.servers {
			switch {
			case !s.closing && (s.user == uid || d.multiUser):
				mine = s
			case len(s.clients) == 0:
				d.endServer(s)
			default:
				s.closing = true
			}
		}
		if mine == nil && len(d.servers) == 0 {
			d.say("NEW CLIENT %d from user %d: Server is not ready, push client to pending list", pid, uid)
			mine = d.startServer(uid)
		}
		if mine == nil {
			d.changed.Wait()
		}
	}
	mine.clients[pid] = c
	d.mu.Unlock()
	fmt.Fprintln(c, mine.pid)
	_, _ = in.ReadByte() // returns when the client, or its server, has ended
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(mine.clients, pid)
	d.changed.Broadcast()
}

// serve is nvidia-cuda-mps-server.
func serve(_ self, b Behaviour) int {
	if !b.GPU {
		return 1
	}
	b.appear()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	<-asked
	return 0
}

// runs tells whether a process has not ended. One that nobody has asked how it ended has.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// compute is a CUDA process, which holds its connection until it ends. It computes as long as
// its server runs, whatever becomes of the daemon.
func compute(me self, b Behaviour) int {
	b.appear()
	c, err := dial("control")
	if err != nil {
		fmt.Println("no MPS")
		return 1
	}
	fmt.Fprintf(c, "%s\nCLIENT %d\n", me.args[0], os.Getpid())
	in := bufio.NewReader(c)
	server, err := in.ReadString('\n')
	if err != nil {
		return 1
	}
	fmt.Println("computing")
	if _, err := in.ReadByte(); err == nil {
		return 1 // terminated: what it computes fails from here on
	}
	// The server has ended, or the daemon alone.
	for runs(number(strings.TrimSpace(server))) {
		time.Sleep(10 * time.Millisecond)
	}
	return 1
}

// Client is a CUDA process that computes through a daemon, or waits to.
type Client struct {
	PID       int
	computing chan struct{}
	ended     chan struct{}
	process   *os.Process
}

// StartClient starts a CUDA process of a user.
func (p *Programs) StartClient(pipeDir string, uid int) *Client {
	p.t.Helper()
	return p.StartProcess(clientName, uid, pipeVariable+"="+pipeDir)
}

// StartProcess starts a CUDA process of a user under a name of its own, with an
// environment that says how it finds its daemon.
func (p *Programs) StartProcess(name string, uid int, env ...string) *Client {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		if err := os.Symlink(clientName, path); err != nil {
			p.t.Fatal(err)
		}
	}
	cmd := command(path, strconv.Itoa(uid))
	cmd.Env = append([]string{}, env...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	c := &Client{PID: cmd.Process.Pid, computing: make(chan struct{}), ended: make(chan struct{}), process: cmd.Process}
	go func() {
		if lines := bufio.NewScanner(out); lines.Scan() && lines.Text() == "computing" {
			close(c.computing)
		}
		_ = cmd.Wait() // it is killed, or its server ends
		close(c.ended)
	}()
	p.t.Cleanup(c.Stop)
	return c
}

const patience = 5 * time.Second

// Computes waits until the process computes, and fails the test when it does not.
func (c *Client) Computes(t testing.TB) *Client {
	t.Helper()
	select {
	case <-c.computing:
	case <-time.After(patience):
		t.Fatal("the client does not compute")
	}
	return c
}

// Waits tells whether the process still has no server after a while.
func (c *Client) Waits() bool {
	select {
	case <-c.computing:
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// Ended tells whether the process ends within a while.
func (c *Client) Ended() bool {
	select {
	case <-c.ended:
		return true
	case <-time.After(patience):
		return false
	}
}

// Stop ends the process.
func (c *Client) Stop() {
	_ = c.process.Kill() // it may have ended already
	<-c.ended
}
