//go:build linux

package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// perPhase is how many operations a phase has.
const perPhase = 20

// number reads a number of the environment, 0 for none.
func number(t *testing.T, name string) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		t.Fatalf("%s is %q; it must be a whole number above 0", name, text)
	}
	return n
}

// TestChaos makes CHAOS_OPS operations of the seed CHAOS_SEED, or of a random one.
func TestChaos(t *testing.T) {
	ops := number(t, "CHAOS_OPS")
	if ops == 0 {
		t.Skip("`make chaos` runs it")
	}
	seed := number(t, "CHAOS_SEED")
	if seed == 0 {
		seed = 1 + rand.IntN(1_000_000)
	}
	dir, err := os.MkdirTemp("", "gpu-chaos-") //nolint:usetesting // it is kept after a violation
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("chaos: seed %d, %d operations, everything in %s\n", seed, ops, dir)
	h := newHarness(t, dir)
	g := &generator{model: h.model, rng: rand.New(rand.NewPCG(uint64(seed), 0))}
	for phase := 1; g.number < ops && !h.failed(); phase++ {
		h.beginPhase(phase)
		list := g.phase(min(perPhase, ops-g.number))
		for vm, why := range g.unsure {
			h.isUnsure(vm, why)
		}
		h.do(g.rng.Uint64(), list)
		h.settle()
		g.endPhase()
		fmt.Printf("chaos: phase %d, %s: %s\n", phase, time.Since(h.begun).Round(time.Second), h.figures)
	}
	if !h.failed() {
		h.destroyEverything(g)
	}
	h.report(seed, ops)
}

// phase makes the operations of one phase: three of four are of a state.
func (g *generator) phase(n int) []*operation {
	var list []*operation
	for range n {
		if g.rng.IntN(4) == 0 {
			list = append(list, g.handOperation())
		} else {
			list = append(list, g.operationOf(one(g.rng, g.states...)))
		}
	}
	return list
}

// destroyEverything destroys the three states at once, struck as well. The fleet has to
// be as at the beginning.
func (h *harness) destroyEverything(g *generator) {
	h.beginPhase(h.phase + 1)
	for vm, why := range g.unsure {
		h.isUnsure(vm, why)
	}
	var list []*operation
	for _, s := range g.states {
		g.number++
		list = append(list, &operation{
			number: g.number, by: s, what: "destroy all", hcl: s.hcl(), commands: [][]string{{"destroy", "-auto-approve"}}, strikes: g.strikes(1),
		})
	}
	h.do(g.rng.Uint64(), list)
	for _, s := range g.states {
		g.free(s.objects...)
		s.objects = nil
	}
	h.settle()
	fmt.Printf("chaos: everything destroyed, %s: %s\n", time.Since(h.begun).Round(time.Second), h.figures)
}

// report says how it ended. What a violation needs to be understood is kept.
func (h *harness) report(seed, ops int) {
	h.t.Helper()
	fmt.Printf("chaos: seed %d: %s; %d violations\n", seed, h.figures, len(h.violations))
	if !h.failed() {
		if err := os.RemoveAll(h.dir); err != nil {
			h.t.Error(err)
		}
		return
	}
	log, err := os.ReadFile(h.log.Name())
	if err != nil {
		h.t.Error(err)
	}
	h.t.Logf("operations of phase %d:\n%s", h.phase, log)
	h.t.Logf("the fleet since the phase began (-before +now):\n%s", cmp.Diff(h.before, h.snapshot()))
	for _, v := range h.violations {
		h.t.Errorf("violation: %s", v)
	}
	h.t.Errorf("seed %d, phase %d. The logs, the fleet before and after, and the states are in %s (everything: %s).\nRepeat it with: make "+
		"chaos SEED=%d OPS=%d", seed, h.phase, h.logs, h.dir, seed, ops)
}
