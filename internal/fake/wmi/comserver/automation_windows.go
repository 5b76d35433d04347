package comserver

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/go-ole/go-ole"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// HRESULTs of automation.
const (
	dispUnknownInterface = 0x80020001
	dispMemberNotFound   = 0x80020003
	dispTypeMismatch     = 0x80020005
	dispUnknownName      = 0x80020006
	dispException        = 0x80020009
	dispBadParamCount    = 0x8002000E
)

// Ways to invoke a member. A call may be asked for as either when the language of the
// caller cannot tell.
const (
	asMethod = 1
	asGet    = 2
	asPut    = 4 | 8
)

// automation is an object that scripts can use.
type automation interface {
	// member finds a member by its name, which compares without case.
	member(name string) (member, bool)
}

// member is a method or a property.
type member struct {
	// call runs a method, get reads a property: one of them is set.
	call func(args) (any, error)
	get  func() (any, error)
	// put writes a property that can be written.
	put func(*ole.VARIANT) error
	// needs and takes are how many arguments a method must and may have.
	needs, takes int
}

func method(needs, takes int, f func(args) (any, error)) (member, bool) {
	return member{call: f, needs: needs, takes: takes}, true
}

func property(get func() (any, error)) (member, bool) {
	return member{get: get}, true
}

func constant(v any) (member, bool) {
	return property(func() (any, error) { return v, nil })
}

// dispatch wraps an automation for clients.
func dispatch(a automation, iids ...*ole.GUID) *object {
	return newObject(&automationTable, a, append(iids, ole.IID_IDispatch)...)
}

// refusal is an HRESULT that automation answers without an exception.
type refusal uint32

func (r refusal) Error() string { return fmt.Sprintf("0x%08X", uint32(r)) }

// ids are the numbers under which names are invoked. The few that automation fixes
// are negative or zero.
var ids = struct {
	sync.Mutex
	names map[int32]string
	ids   map[string]int32
}{
	names: map[int32]string{-4: "_newenum"},
	ids:   map[string]int32{"_newenum": -4},
}

func idOf(name string) int32 {
	ids.Lock()
	defer ids.Unlock()
	key := strings.ToLower(name)
	id, ok := ids.ids[key]
	if !ok {
		id = int32(len(ids.ids))
		ids.ids[key], ids.names[id] = id, key
	}
	return id
}

func nameOf(id int32) (string, bool) {
	ids.Lock()
	defer ids.Unlock()
	name, ok := ids.names[id]
	return name, ok
}

func getTypeInfoCount(_ *object, n *uint32) uintptr {
	if n == nil {
		return ePointer
	}
	*n = 0
	return sOK
}

func getIDsOfNames(o *object, iid *ole.GUID, names **uint16, n, _ uint32, out *int32) (hr uintptr) {
	defer unexpectedly(&hr)
	if names == nil || out == nil || n == 0 {
		return ePointer
	}
	if iid != nil && !ole.IsEqualGUID(iid, ole.IID_NULL) {
		return dispUnknownInterface
	}
	if !o.alive() {
		return coEReleased
	}
	found := unsafe.Slice(out, n)
	for i := range found {
		found[i] = -1
	}
	// Names after the first are those of arguments, which nobody here gives.
	name := ole.LpOleStrToString(*names)
	face, ok := o.face.(automation)
	if !ok {
		return eUnexpected
	}
	if _, ok := face.member(name); !ok || n > 1 {
		return dispUnknownName
	}
	found[0] = idOf(name)
	return sOK
}

// parameters is DISPPARAMS.
type parameters struct {
	args       *ole.VARIANT
	named      *int32
	count      uint32
	namedCount uint32
}

// exceptionInfo is EXCEPINFO.
type exceptionInfo struct {
	_, _                   uint16
	source, description, _ *int16
	_                      uint32
	_, _                   uintptr
	scode                  uint32
}

func invoke(o *object, id int32, iid *ole.GUID, _ uint32, flags uintptr, p *parameters, out *ole.VARIANT,
	info *exceptionInfo, wrong *uint32,
) (hr uintptr) {
	defer unexpectedly(&hr)
	if iid != nil && !ole.IsEqualGUID(iid, ole.IID_NULL) {
		return dispUnknownInterface
	}
	if p == nil {
		return ePointer
	}
	if !o.alive() {
		return coEReleased
	}
	name, _ := nameOf(id)
	face, ok := o.face.(automation)
	if !ok {
		return eUnexpected
	}
	m, ok := face.member(name)
	if !ok {
		return dispMemberNotFound
	}
	v, err := m.invoke(flags, read(p))
	var result ole.VARIANT
	if err == nil {
		result, err = variant(v)
	}
	if err != nil {
		return failed(err, info, wrong)
	}
	if out == nil {
		clearVariant(&result)
		return sOK
	}
	*out = result
	return sOK
}

func (m member) invoke(flags uintptr, a args) (any, error) {
	switch {
	case m.call != nil && flags&asMethod != 0:
		if len(a.list) < m.needs || len(a.list) > m.takes {
			return nil, refusal(dispBadParamCount)
		}
		return m.call(a)
	case m.get != nil && flags&asGet != 0:
		if len(a.list) > 0 {
			return nil, refusal(dispBadParamCount)
		}
		return m.get()
	case m.put != nil && flags&asPut != 0:
		if len(a.list) != 1 || !a.putting {
			return nil, refusal(dispBadParamCount)
		}
		return nil, m.put(a.list[0])
	default:
		return nil, refusal(dispMemberNotFound)
	}
}

// failed reports an error: a refusal as it is, what WMI says as an exception.
func failed(err error, info *exceptionInfo, wrong *uint32) uintptr {
	if r, ok := errors.AsType[refusal](err); ok {
		if r == dispTypeMismatch && wrong != nil {
			*wrong = 0
		}
		return uintptr(r)
	}
	code, text := hyperv.Unexpected, err.Error()
	if f, ok := errors.AsType[*hyperv.Fault](err); ok {
		code, text = f.Code, f.Text
	}
	if info != nil {
		*info = exceptionInfo{scode: uint32(code), source: ole.SysAllocStringLen("SWbem")}
		if text != "" {
			info.description = ole.SysAllocStringLen(text)
		}
	}
	return dispException
}

// unexpectedly keeps a panic from crossing into the caller, which is not Go.
func unexpectedly(hr *uintptr) {
	if recover() != nil {
		*hr = eUnexpected
	}
}
