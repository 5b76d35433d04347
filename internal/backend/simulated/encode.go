package simulated

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The lists of a host that grow with it, in the order of the file.
const (
	listGPUs = iota
	listVMs
	listClaims
	listCount
)

// span is where something lies in the bytes of a host.
type span struct{ from, to int }

// lookAhead is how many elements that are gone are passed by in search of one that stays.
const lookAhead = 4

// encode returns the bytes of a host, as json.MarshalIndent writes them but for claims, and where the
// elements of its long lists lie in them. What an update has left as it was before is copied
// from the old bytes: most updates concern one VM or one record of a host with many.
func (e *entry) encode(before *record) (json.RawMessage, [listCount][]span, error) {
	// The host with at most one element, an empty one, in each list.
	frame := *e.rec
	frame.GPUs, frame.VMs, frame.Claims = framed(frame.GPUs), framed(frame.VMs), framed(frame.Claims)
	rest, err := json.MarshalIndent(&frame, "    ", "  ")
	w := writing{old: e, rest: rest, err: err}
	w.out.Grow(len(e.raw) + 1024)
	fill(&w, listGPUs, "gpus", e.rec.GPUs, before.GPUs)
	fill(&w, listVMs, "vms", e.rec.VMs, before.VMs)
	fill(&w, listClaims, "claims", e.rec.Claims, before.Claims)
	w.out.Write(w.rest)
	return w.out.Bytes(), w.lists, w.err
}

// element is one of a list as the file has it: a claim on one line, since people read GPUs and VMs, and
// the file is written often.
func element(list int, of any) ([]byte, error) {
	if list == listClaims {
		return json.Marshal(of)
	}
	return json.MarshalIndent(of, "        ", "  ")
}

// writing is a host that is being written: out has what comes before rest of its frame.
type writing struct {
	old   *entry
	rest  []byte
	out   bytes.Buffer
	lists [listCount][]span
	err   error
}

func framed[T gpu.GPU | gpu.VM | gpu.Claim](list []T) []T {
	if len(list) == 0 {
		return list
	}
	return make([]T, 1)
}

// fill writes the frame up to a list, and its elements in place of the empty one.
func fill[T gpu.GPU | gpu.VM | gpu.Claim](w *writing, list int, name string, now, before []T) {
	if len(now) == 0 || w.err != nil {
		return
	}
	// Only the fields of the host itself stand six blanks in.
	head, tail := []byte("\n      \""+name+"\": ["), []byte("\n      ]")
	start, rest, _ := bytes.Cut(w.rest, head)
	_, w.rest, _ = bytes.Cut(rest, tail)
	w.out.Write(start)
	w.out.Write(head)
	old := w.old.lists[list]
	if len(old) != len(before) {
		before = nil // somebody else wrote them
	}
	spans := make([]span, len(now))
	next := 0
	for i := range now {
		if i > 0 {
			w.out.WriteByte(',')
		}
		w.out.WriteString("\n        ")
		from := w.out.Len()
		same := -1
		for k := next; k < min(next+lookAhead, len(before)) && same < 0; k++ {
			if &now[i] == &before[k] || reflect.DeepEqual(&now[i], &before[k]) {
				same = k
			}
		}
		if same >= 0 {
			w.out.Write(w.old.raw[old[same].from:old[same].to])
			next = same + 1
		} else {
			raw, err := element(list, &now[i])
			if err != nil {
				w.err = err
				return
			}
			w.out.Write(raw)
		}
		spans[i] = span{from, w.out.Len()}
	}
	w.out.Write(tail)
	w.lists[list] = spans
}
