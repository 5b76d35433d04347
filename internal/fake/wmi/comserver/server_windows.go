package comserver

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-ole/go-ole"
	"golang.org/x/sys/windows"

	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
)

var (
	ole32                     = windows.NewLazySystemDLL("ole32.dll")
	procCoIncrementMTAUsage   = ole32.NewProc("CoIncrementMTAUsage")
	procCoRegisterClassObject = ole32.NewProc("CoRegisterClassObject")
	procCoRevokeClassObject   = ole32.NewProc("CoRevokeClassObject")
)

const (
	inProcess   = 1 // CLSCTX_INPROC_SERVER
	multipleUse = 1 // REGCLS_MULTIPLEUSE

	classNoAggregation = 0x80040110 // CLASS_E_NOAGGREGATION
)

// prepare keeps a multithreaded apartment alive, in which the objects live.
var prepare = sync.OnceValue(func() error {
	makeTables()
	var cookie uintptr
	if hr, _, _ := procCoIncrementMTAUsage.Call(uintptr(unsafe.Pointer(&cookie))); hr != 0 {
		return ole.NewError(hr)
	}
	return nil
})

var registered atomic.Bool

// Register makes a machine the one that this process finds behind
// WbemScripting.SWbemLocator, until unregister is called. Objects that clients have
// by then go on working.
func Register(m *fakewmi.Machine) (unregister func(), err error) {
	if err := prepare(); err != nil {
		return nil, err
	}
	if !registered.CompareAndSwap(false, true) {
		return nil, errors.New("a machine is registered already in this process")
	}
	defer func() {
		if err != nil {
			registered.Store(false)
		}
	}()
	class, err := ole.ClassIDFrom("WbemScripting.SWbemLocator")
	if err != nil {
		return nil, err
	}
	f := newObject(&factoryTable, &factory{machine: m}, ole.NewGUID("{00000001-0000-0000-C000-000000000046}"))
	var cookie uint32
	if hr, _, _ := procCoRegisterClassObject.Call(uintptr(unsafe.Pointer(class)), uintptr(unsafe.Pointer(f)),
		inProcess, multipleUse, uintptr(unsafe.Pointer(&cookie))); hr != 0 {
		return nil, ole.NewError(hr)
	}
	return sync.OnceFunc(func() {
		procCoRevokeClassObject.Call(uintptr(cookie)) //nolint:errcheck // there is nothing to do about it
		f.release()
		registered.Store(false)
	}), nil
}

// factory is IClassFactory of the locator.
type factory struct{ machine *fakewmi.Machine }

func createInstance(o *object, outer uintptr, iid *ole.GUID, out **object) (hr uintptr) {
	defer unexpectedly(&hr)
	if out == nil {
		return ePointer
	}
	*out = nil
	f, ok := o.face.(*factory)
	switch {
	case !ok:
		return eUnexpected
	case outer != 0:
		return classNoAggregation
	}
	l := dispatch(&locator{f.machine}, iidLocator)
	defer l.release()
	return l.queryInterface(iid, out)
}
