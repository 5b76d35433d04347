package comserver

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-ole/go-ole"
)

// HRESULTs that COM itself defines.
const (
	sOK          = 0
	sFalse       = 1
	eNotImpl     = 0x80004001
	eNoInterface = 0x80004002
	ePointer     = 0x80004003
	eUnexpected  = 0x8000FFFF
	coEReleased  = 0x800401FF
)

// object is what clients have pointers to. COM finds its functions through the first
// field.
type object struct {
	vtable *[7]uintptr
	refs   atomic.Int32
	iids   []*ole.GUID
	// face is an automation, an enumerator or a factory.
	face any
}

// heap keeps the objects alive that clients hold, which Go's collector knows nothing
// of, and for a while those that they have released, so that a use of them is found
// out instead of being a crash.
var heap struct {
	sync.Mutex
	held     map[*object]bool
	released [1 << 14]*object
	next     int
	misused  int
}

// Held tells how many objects clients hold.
func Held() int {
	heap.Lock()
	defer heap.Unlock()
	return len(heap.held)
}

// Misused tells how often an object was used that had been released.
func Misused() int {
	heap.Lock()
	defer heap.Unlock()
	return heap.misused
}

// newObject makes an object with one reference.
func newObject(vtable *[7]uintptr, face any, iids ...*ole.GUID) *object {
	o := &object{vtable: vtable, face: face, iids: iids}
	o.refs.Store(1)
	heap.Lock()
	defer heap.Unlock()
	if heap.held == nil {
		heap.held = map[*object]bool{}
	}
	heap.held[o] = true
	return o
}

// alive tells whether an object is still held, and counts it when not.
func (o *object) alive() bool {
	heap.Lock()
	defer heap.Unlock()
	if heap.held[o] {
		return true
	}
	heap.misused++
	return false
}

// number is the object's address, as a variant holds it.
func (o *object) number() int64 {
	return int64(uintptr(unsafe.Pointer(o)))
}

func (o *object) queryInterface(iid *ole.GUID, out **object) uintptr {
	if out == nil || iid == nil {
		return ePointer
	}
	*out = nil
	if !o.alive() {
		return coEReleased
	}
	if !slices.ContainsFunc(o.iids, func(known *ole.GUID) bool { return ole.IsEqualGUID(known, iid) }) &&
		!ole.IsEqualGUID(iid, ole.IID_IUnknown) {
		return eNoInterface
	}
	o.refs.Add(1)
	*out = o
	return sOK
}

func (o *object) addRef() uintptr {
	if !o.alive() {
		return 0
	}
	return uintptr(o.refs.Add(1))
}

func (o *object) release() uintptr {
	if !o.alive() {
		return 0
	}
	n := o.refs.Add(-1)
	if n > 0 {
		return uintptr(n)
	}
	heap.Lock()
	defer heap.Unlock()
	delete(heap.held, o)
	heap.released[heap.next] = o
	heap.next = (heap.next + 1) % len(heap.released)
	return 0
}
