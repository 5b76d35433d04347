package core

import (
	"slices"
	"strings"
	"sync"
)

// graph is work in an order: a node runs when all that it waits for has run well, and
// at the same time as others.
type graph struct {
	nodes map[string]*node
}

type node struct {
	after map[string]bool
	run   func() bool
	done  chan struct{}
	ok    bool
}

func newGraph() *graph { return &graph{nodes: map[string]*node{}} }

// add puts a node into the graph. What it waits for need not be there.
func (g *graph) add(key string, run func() bool, after ...string) {
	n := &node{after: map[string]bool{}, run: run, done: make(chan struct{})}
	g.nodes[key] = n
	for _, k := range after {
		n.after[k] = true
	}
}

// order lets a node wait for another if both are there.
func (g *graph) order(later, earlier string) {
	if g.nodes[later] != nil && g.nodes[earlier] != nil && later != earlier {
		g.nodes[later].after[earlier] = true
	}
}

// walk runs all nodes. What waits for a node that fails is left out, without a word.
func (g *graph) walk() Diagnostics {
	if cycle := g.cycle(); cycle != nil {
		return Diagnostics{failure("Cycle: "+strings.Join(cycle, ", "), "")}
	}
	var all sync.WaitGroup
	for _, n := range g.nodes {
		all.Go(func() {
			defer close(n.done)
			for k := range n.after {
				if before := g.nodes[k]; before != nil {
					<-before.done
					if !before.ok {
						return
					}
				}
			}
			n.ok = n.run()
		})
	}
	all.Wait()
	return nil
}

// cycle is a list of nodes that wait for each other, if there are any.
func (g *graph) cycle() []string {
	const entered, left = 1, 2
	state, path := map[string]int{}, []string{}
	var visit func(string) []string
	visit = func(k string) []string {
		n := g.nodes[k]
		switch {
		case n == nil || state[k] == left:
			return nil
		case state[k] == entered:
			return slices.Clone(path[slices.Index(path, k):])
		}
		state[k], path = entered, append(path, k)
		for next := range n.after {
			if found := visit(next); found != nil {
				return found
			}
		}
		state[k], path = left, path[:len(path)-1]
		return nil
	}
	for k := range g.nodes {
		if found := visit(k); found != nil {
			return found
		}
	}
	return nil
}

// reach is all that a node waits for, directly or not.
func (g *graph) reach(key string) map[string]bool {
	out := map[string]bool{}
	var visit func(string)
	visit = func(k string) {
		if n := g.nodes[k]; n != nil {
			for next := range n.after {
				if !out[next] {
					out[next] = true
					visit(next)
				}
			}
		}
	}
	visit(key)
	return out
}
