//go:build linux

package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// leaseTTL is how long a lease lives here. It is a minute in a release.
const leaseTTL = 6 * time.Second

// strike is what happens to a process while a command runs.
type strike struct {
	command int // of the operation
	// target is "agent", "provider" or "cli".
	target string
	// stop is how long it is stopped; 0 kills it.
	stop time.Duration
	// It strikes after so many writes to the fleet since the command began, or, without, after
	// a time.
	writes int
	after  time.Duration
}

func (s strike) String() string {
	what := "kill " + s.target
	if s.stop > 0 {
		what = fmt.Sprintf("stop %s for %s", s.target, s.stop.Round(10*time.Millisecond))
	}
	if s.writes > 0 {
		return fmt.Sprintf("%s at write %d", what, s.writes)
	}
	return fmt.Sprintf("%s after %s", what, s.after.Round(10*time.Millisecond))
}

func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)))
}

// strikes are those on an operation.
func (g *generator) strikes(commands int) []strike {
	var out []strike
	for n := one(g.rng, 0, 0, 0, 1, 1, 1, 1, 2); n > 0; n-- {
		s := strike{command: g.rng.IntN(commands), target: one(g.rng, "agent", "agent", "agent", "agent", "agent", "provider", "provider", "cli")}
		switch g.rng.IntN(10) {
		case 0, 1, 2:
			s.stop = between(g.rng, 200*time.Millisecond, 3*time.Second)
		case 3:
			s.stop = between(g.rng, leaseTTL, 2*leaseTTL)
		}
		if g.rng.IntN(4) > 0 {
			s.writes = 1 + g.rng.IntN(16)
		} else {
			s.after = between(g.rng, 50*time.Millisecond, 1200*time.Millisecond)
		}
		out = append(out, s)
	}
	return out
}

// process is one of the processes that run the binaries of this harness.
type process struct {
	pid, parent int
	binary      string // base name
	args        []string
}

// host is which host an agent is of.
func (p process) host() string {
	if i := slices.Index(p.args, "--host"); i >= 0 && i+1 < len(p.args) {
		return p.args[i+1]
	}
	return ""
}

// processes lists those whose binary lies in a directory.
func processes(dir string) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that has ended meanwhile is none.
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil || filepath.Dir(exe) != dir {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		out = append(out, process{
			pid: pid, parent: parent, binary: filepath.Base(exe), args: strings.Split(strings.TrimRight(string(args), "\x00"), "\x00"),
		})
	}
	return out
}

// writes counts the writes to the fleet file. Those that come close together may count as
// one.
type writes struct {
	file string
	last os.FileInfo
	n    int
}

func (w *writes) look() int {
	info, err := os.Stat(w.file)
	if err != nil {
		return w.n
	}
	if w.last != nil && !os.SameFile(w.last, info) {
		w.n++
	}
	w.last = info
	return w.n
}

// striker strikes the processes of one command.
type striker struct {
	h     *harness
	cli   int // process id
	ended chan struct{}
	wg    sync.WaitGroup
	mu    sync.Mutex
	done  []string
	// struck targets of this command.
	struck map[string]bool
}

// strike begins to watch a command. Its wait returns when all that was stopped goes on.
func (h *harness) strike(cli int, rng *rand.Rand, list []strike) *striker {
	s := &striker{h: h, cli: cli, ended: make(chan struct{}), struck: map[string]bool{}}
	for _, x := range list {
		seed := rng.Uint64()
		s.wg.Go(func() { s.run(x, rand.New(rand.NewPCG(seed, 0))) })
	}
	return s
}

// wait ends what has not struck yet.
func (s *striker) wait() []string {
	close(s.ended)
	s.wg.Wait()
	return s.done
}

func (s *striker) run(x strike, rng *rand.Rand) {
	begun, w := time.Now(), &writes{file: s.h.fleet.Path()}
	w.look()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.ended:
			return
		case <-tick.C:
		}
		if x.writes > 0 && w.look() < x.writes || x.writes == 0 && time.Since(begun) < x.after {
			continue
		}
		if p, ok := s.victim(x.target, rng); ok {
			s.hit(x, p)
			return
		}
	}
}

// victim is a process of the command. An agent outlives its provider, and is anybody's
// then.
func (s *striker) victim(target string, rng *rand.Rand) (process, bool) {
	if target == "cli" {
		return process{pid: s.cli}, true
	}
	all := processes(s.h.bin)
	parents := map[int]int{} // of providers
	var out []process
	for _, p := range all {
		if p.binary == providerName {
			parents[p.pid] = p.parent
			if target == "provider" && p.parent == s.cli {
				out = append(out, p)
			}
		}
	}
	if target == "agent" {
		for _, p := range all {
			cli, alive := parents[p.parent]
			if p.binary == agentName && (alive && cli == s.cli || !alive && p.parent != os.Getpid()) {
				out = append(out, p)
			}
		}
		// That of a host where something is being done, if there is one.
		busy := s.h.busy()
		if at := slices.DeleteFunc(slices.Clone(out), func(p process) bool { return !busy[p.host()] }); len(at) > 0 {
			out = at
		}
	}
	return pick(rng, out)
}

func (s *striker) hit(x strike, p process) {
	what := x.String()
	if h := p.host(); h != "" {
		what += " of " + h
	}
	signal := syscall.SIGKILL
	if x.stop > 0 {
		signal = syscall.SIGSTOP
	}
	if syscall.Kill(p.pid, signal) != nil {
		return // it has just ended
	}
	s.mu.Lock()
	s.done, s.struck[x.target] = append(s.done, fmt.Sprintf("%s [%d] %s", time.Now().Format("15:04:05.000"), p.pid, what)), true
	s.mu.Unlock()
	s.h.counted(func(f *figures) {
		if x.stop > 0 {
			f.stops[x.target]++
			if x.stop > leaseTTL {
				f.beyondLease++
			}
		} else {
			f.kills[x.target]++
		}
	})
	if x.stop > 0 {
		time.Sleep(x.stop)
		_ = syscall.Kill(p.pid, syscall.SIGCONT) // unless somebody has killed it
	}
}
