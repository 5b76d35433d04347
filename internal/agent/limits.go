package agent

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// sizes limit a document. A few bytes of JSON can become a large structure, so its values
// are counted before it is decoded.
type sizes struct {
	bytes    int
	values   int
	elements int // of one list or object
}

var (
	// A request is small. The largest are changes, of which a config of 16 GPUs on a host whose
	// 300 VMs are all claimed elsewhere, with every setting, takes less than half of these limits.
	largestRequest = sizes{bytes: 1 << 20, values: 60_000, elements: 2_000}
	// largestReply is what a client takes for an answer. A host with 16 GPUs, 4,000 VMs and a claim
	// for each, all with every setting, stays below it. An answer of empty values, which become the
	// most memory for their size, takes the client about 100 MiB.
	largestReply = sizes{bytes: 16 << 20, values: 600_000, elements: 20_000}
)

const (
	maxRequestHeader = 16 << 10
	// maxReplyHeader is that of a failed change: its error travels in headers, with the host as the
	// change left it.
	maxReplyHeader = 16 << 20
	// usualReply is what several answers may have at a time. A larger one is asked for alone.
	usualReply = 2 << 20
	// introduction is what an agent may say of itself, in bytes.
	introduction = 256 << 10
	maxDepth     = 32    // of lists and objects in a document
	maxCount     = 1_024 // of anything that a document has by a number

	// maxStreams is how many calls one connection may have, and maxCalls one caller on all of
	// its connections: more than any run has, which makes one change after the other.
	maxStreams = 32
	maxCalls   = 64
	// How many calls are worked on at a time; others wait.
	maxPrepares     = 2
	maxInventories  = 4
	maxMeasurements = 8
)

// requestLimits are the server's options for what it accepts.
func requestLimits() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(largestRequest.bytes + 1<<10), // with what is around the document
		grpc.MaxHeaderListSize(maxRequestHeader),
		grpc.MaxConcurrentStreams(maxStreams),
		// A fixed window: gRPC would let a busy connection buffer up to 16 MiB of each call.
		grpc.InitialWindowSize(64 << 10),
	}
}

// LimitCalls limits the calls of each caller of a server, over all of its connections.
func LimitCalls(caller func(context.Context) string) grpc.ServerOption {
	var mu sync.Mutex
	calls := map[string]int{}
	return grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		who := caller(ctx)
		mu.Lock()
		defer mu.Unlock()
		if calls[who] >= maxCalls {
			return nil, toStatus(&Error{
				Code: Unavailable, Message: fmt.Sprintf("the agent answers %d calls of this client already, which is all that it does at a time",
					maxCalls),
			})
		}
		calls[who]++
		context.AfterFunc(ctx, func() { // when the call has ended
			mu.Lock()
			defer mu.Unlock()
			if calls[who]--; calls[who] == 0 {
				delete(calls, who)
			}
		})
		return ctx, nil
	})
}

// gates let so many calls of a kind work at a time.
type gates struct{ prepare, inventory, measure gate }

type gate chan struct{}

func newGates() gates {
	return gates{prepare: make(gate, maxPrepares), inventory: make(gate, maxInventories), measure: make(gate, maxMeasurements)}
}

// pass waits for a place; no gate lets everybody through.
func (g gate) pass(ctx context.Context) (leave func(), err error) {
	if g == nil {
		return func() {}, nil
	}
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, &Error{Code: Cancelled, Message: "the call was cancelled while it waited for others"}
	}
}

// checkSize refuses a document of a request that would take much memory to decode.
func checkSize(what string, doc []byte) error {
	if over := largestRequest.exceeded(doc); over != "" {
		return &Error{Code: BadRequest, Message: fmt.Sprintf("the %s is larger than an agent accepts: it has %s", what, over)}
	}
	return nil
}

// exceeded says what of a document is beyond the limits, "" for nothing. What is no JSON
// passes: the decoder says it better.
func (s sizes) exceeded(doc []byte) string {
	if len(doc) > s.bytes {
		return fmt.Sprintf("%d bytes of at most %d", len(doc), s.bytes)
	}
	values, depth := 0, 0
	var elements [maxDepth]int // at each depth
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"': // to the end of the string
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
			continue
		case '{', '[':
			if depth++; depth >= maxDepth {
				return fmt.Sprintf("lists and objects more than %d deep", maxDepth)
			}
			elements[depth] = 1
			values++
		case '}', ']':
			depth = max(depth-1, 0)
		case ',':
			elements[depth]++
			values++
		}
		if values > s.values {
			return fmt.Sprintf("more than %d values", s.values)
		}
		if elements[depth] > s.elements {
			return fmt.Sprintf("a list or an object of more than %d elements", s.elements)
		}
	}
	return ""
}

// checkCounts refuses numbers that a few bytes ask for and that would be worked out one by
// one.
func checkCounts(ch *Change) error {
	wants := []gpu.Want{ch.Want, ch.Prior}
	for _, c := range ch.Claims {
		wants = append(wants, c.Want, gpu.Want{Assignment: c.HeldUntilOff})
	}
	for _, w := range wants {
		for what, n := range counts(w) {
			if n > maxCount {
				return &Error{Code: BadRequest, Message: fmt.Sprintf("the change asks for %d %s; an agent accepts at most %d", n, what, maxCount)}
			}
		}
	}
	return nil
}

// counts are the numbers of things that a want asks for.
func counts(w gpu.Want) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		one := func(what string, n *int) bool { return n == nil || yield(what, *n) }
		each := func(what string, of map[string]int) bool {
			for _, n := range of {
				if !yield(what, n) {
					return false
				}
			}
			return true
		}
		ok := true
		if c := w.Config; c != nil {
			ok = yield("partitions", c.Count) &&
				(c.MIG == nil || each("MIG instances", c.MIG.Profiles)) &&
				(c.VGPU == nil || one("vGPUs", c.VGPU.Count) && each("vGPUs", c.VGPU.Types)) &&
				(c.TimeSlicing == nil || yield("replicas", c.TimeSlicing.Replicas))
		}
		if a := w.Assignment; ok && a != nil && a.Pool != nil {
			ok = yield("GPUs of a pool", a.Pool.Count)
		}
		if s := w.Share; ok && s != nil {
			yield("GPUs of a share", s.Count)
		}
	}
}
