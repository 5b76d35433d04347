package fakemps

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// daemon is a control daemon.
type daemon struct {
	me        self
	b         Behaviour
	pipe      string
	log       *os.File
	multiUser bool
	// static is how it was started: partitions are those that were made, by id.
	static     bool
	partitions []partition
	made       int

	mu       sync.Mutex
	changed  *sync.Cond // a server or a client has come or gone
	threads  float64
	priority string
	limits   map[int]string
	servers  []*mpsServer
	quitting bool
	failed   bool // a server ever did
}

// daemonize is the daemon's process.
func daemonize(me self, b Behaviour) int {
	const inherited = 3
	syscall.CloseOnExec(inherited) // no server of ours keeps it open
	ready := os.NewFile(inherited, "ready")
	d := &daemon{me: me, b: b, pipe: pipeDir(), threads: 100, priority: "0", limits: map[int]string{}}
	d.changed = sync.NewCond(&d.mu)
	d.multiUser = slices.Contains(me.args, "-multiuser-server")
	d.static = slices.Contains(me.args, "-S")
	if b.FailsToStart {
		return 1
	}
	b.appear()
	listener, problem := d.listen()
	if problem != "" {
		fmt.Fprint(ready, problem)
	}
	if listener == nil {
		return 1
	}
	d.say("Starting control daemon using socket %s", filepath.Join(d.pipe, "control"))
	d.say("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s", d.pipe)
	d.say("CUDA MPS Control binary version: 13000")
	if p, err := strconv.ParseFloat(os.Getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), 64); err == nil {
		d.threads = p
	}
	fmt.Fprint(ready, "ready")
	ready.Close()
	for {
		d.say("Accepting connection...")
		c, err := listener.Accept()
		if err != nil {
			return 1
		}
		go d.serve(c)
	}
}

// listen makes what is in the pipe directory. It fails without a word, unless another
// daemon runs.
func (d *daemon) listen() (net.Listener, string) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	logDir := variable(logVariable, "/var/log/nvidia-mps")
	for _, dir := range []string{d.pipe, logDir} {
		if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, ""
		}
	}
	lock, err := os.OpenFile(filepath.Join(d.pipe, "control_lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, ""
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil, "An instance of this daemon is already running"
	}
	// The lock lives as long as the process: its file is never closed.
	for _, name := range []string{"control", "control_privileged", "log"} {
		os.Remove(filepath.Join(d.pipe, name))
	}
	listener, err := listenOn("control")
	if err != nil {
		return nil, ""
	}
	privileged, err := listenOn("control_privileged")
	if err != nil {
		return nil, ""
	}
	go func() {
		for {
			c, err := privileged.Accept()
			if err != nil {
				return
			}
			go d.serve(c)
		}
	}()
	for name, mode := range map[string]os.FileMode{"control": 0o666, "control_privileged": 0o755} {
		if os.Chmod(filepath.Join(d.pipe, name), mode) != nil {
			return nil, ""
		}
	}
	if syscall.Mkfifo(filepath.Join(d.pipe, "log"), 0o777) != nil {
		return nil, ""
	}
	if d.b.Driver >= 550 && os.WriteFile(d.pidFile(), []byte(strconv.Itoa(os.Getpid())), 0o666) != nil {
		return nil, ""
	}
	for _, name := range []string{"control.log", "server.log"} {
		f, err := os.OpenFile(filepath.Join(logDir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, ""
		}
		if name == "control.log" {
			d.log = f
		}
	}
	return listener, ""
}

func (d *daemon) pidFile() string { return filepath.Join(d.pipe, controlName+".pid") }

func (d *daemon) say(format string, args ...any) {
	fmt.Fprintf(d.log, "[%s Control %5d] %s\n", time.Now().Format("2006-01-02 15:04:05.000"), os.Getpid(), fmt.Sprintf(format, args...))
}

// serve answers a connection: a command of a user, or a client that stays.
func (d *daemon) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	user, err := in.ReadString('\n')
	if err != nil {
		return
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	uid, err := strconv.Atoi(strings.TrimSpace(user))
	if err != nil {
		return
	}
	words := strings.Fields(line)
	if words[0] == "CLIENT" {
		d.client(c, in, uid, number(words[1]))
		return
	}
	if d.b.Deaf {
		select {}
	}
	d.say("NEW UI")
	d.say("Cmd:%s", strings.TrimSpace(line))
	if words[0] == "quit" {
		d.quit(c, words)
	}
	if answer := d.command(uid, words); answer != "" {
		d.say("%s", answer)
		fmt.Fprintln(c, answer)
	}
	d.say("UI closed")
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// quit ends the daemon, with what it leaves behind.
func (d *daemon) quit(c net.Conn, words []string) {
	timeout := time.Hour
	if len(words) == 3 && words[1] == "-t" {
		timeout = time.Duration(number(words[2])) * time.Second
	}
	d.mu.Lock()
	d.quitting = true
	for deadline := time.Now().Add(timeout); d.clients() > 0 && time.Now().Before(deadline); {
		d.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		d.mu.Lock()
	}
	for _, s := range d.servers {
		d.endServer(s)
	}
	status := 0
	if d.failed {
		status = 1
	}
	d.say("Exit with status %d", status)
	os.Remove(filepath.Join(d.pipe, "log"))
	os.Remove(d.pidFile())
	fmt.Fprintf(c, "\x00%d", status)
	c.Close()
	os.Exit(status)
}
