package comserver

import (
	"sync"
	"unsafe"

	"github.com/go-ole/go-ole"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// enumerator is IEnumVARIANT over automations that are made as they are asked for.
type enumerator struct {
	mu    sync.Mutex
	at    int
	count int
	item  func(int) any
	// err is what there is instead of items, or after them.
	err error
}

// enum wraps an enumerator for clients.
func enum(count int, item func(int) any, err error) *unknown {
	return &unknown{newObject(&enumeratorTable, &enumerator{count: count, item: item, err: err}, ole.IID_IEnumVariant)}
}

// unknown is an object that a variant holds as VT_UNKNOWN.
type unknown struct{ *object }

func enumNext(o *object, n uint32, out *ole.VARIANT, fetched *uint32) (hr uintptr) {
	defer unexpectedly(&hr)
	if out == nil || (fetched == nil && n != 1) {
		return ePointer
	}
	if fetched != nil {
		*fetched = 0
	}
	if !o.alive() {
		return coEReleased
	}
	e, ok := o.face.(*enumerator)
	if !ok {
		return eUnexpected
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range unsafe.Slice(out, n) {
		if e.at == e.count {
			if e.err != nil {
				return uintptr(codeOf(e.err))
			}
			return sFalse
		}
		v, err := variant(e.item(e.at))
		if err != nil {
			return uintptr(codeOf(err))
		}
		unsafe.Slice(out, n)[i] = v
		e.at++
		if fetched != nil {
			*fetched++
		}
	}
	return sOK
}

func enumSkip(o *object, n uint32) (hr uintptr) {
	defer unexpectedly(&hr)
	e, ok := o.face.(*enumerator)
	if !ok {
		return eUnexpected
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if int(n) > e.count-e.at {
		e.at = e.count
		return sFalse
	}
	e.at += int(n)
	return sOK
}

func enumReset(o *object) (hr uintptr) {
	defer unexpectedly(&hr)
	e, ok := o.face.(*enumerator)
	if !ok {
		return eUnexpected
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = 0
	return sOK
}

// codeOf is an error as an interface answers that has no exceptions.
func codeOf(err error) hyperv.Code {
	if f, ok := err.(*hyperv.Fault); ok { //nolint:errorlint // repositories answer with faults
		return f.Code
	}
	return hyperv.Unexpected
}
