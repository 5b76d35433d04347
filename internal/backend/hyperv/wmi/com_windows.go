package wmi

import (
	"sync"
	"unsafe"

	"github.com/go-ole/go-ole"
	"github.com/go-ole/go-ole/oleutil"
	cim "github.com/microsoft/wmi/pkg/wmiinstance"
	"golang.org/x/sys/windows"
)

var procCoIncrementMTAUsage = windows.NewLazySystemDLL("ole32.dll").NewProc("CoIncrementMTAUsage")

// initialize readies COM once for the process. It keeps a multithreaded apartment
// alive, to which every thread then belongs that has not asked for another, so that
// a goroutine may use any object on whichever thread it runs.
var initialize = sync.OnceValue(func() error {
	var cookie uintptr
	if hr, _, _ := procCoIncrementMTAUsage.Call(uintptr(unsafe.Pointer(&cookie))); hr != 0 {
		return ole.NewError(hr)
	}
	// root\MSCluster refuses what is not encrypted. Sessions ask for that themselves;
	// this is for what lies between. Who sets it first in the process has set it.
	err := cim.CoInitializeSecurity(cim.RPC_C_AUTHN_LEVEL_PKT_PRIVACY, cim.RPC_C_IMP_LEVEL_IMPERSONATE)
	if err != nil && codeOf(err) != tooLate {
		return err
	}
	return nil
})

// newLocator makes the object that connects to namespaces. Making it again and again
// leaks on Windows Server 2016, so a connection has one.
func newLocator() (*ole.IDispatch, error) {
	if err := initialize(); err != nil {
		return nil, err
	}
	unknown, err := oleutil.CreateObject("WbemScripting.SWbemLocator")
	if err != nil {
		return nil, err
	}
	defer unknown.Release()
	return unknown.QueryInterface(cim.IID_ISWbemLocator)
}
