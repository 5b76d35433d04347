package comserver

import (
	"syscall"

	"github.com/go-ole/go-ole"
)

// The functions of the three kinds of objects.
var automationTable, enumeratorTable, factoryTable [7]uintptr

// makeTables fills them, once in a process: Windows can be given only so many
// functions written in Go.
func makeTables() {
	unknown := [3]uintptr{
		syscall.NewCallback(func(o *object, iid *ole.GUID, out **object) uintptr { return o.queryInterface(iid, out) }),
		syscall.NewCallback(func(o *object) uintptr { return o.addRef() }),
		syscall.NewCallback(func(o *object) uintptr { return o.release() }),
	}
	notImplemented := syscall.NewCallback(func(*object) uintptr { return eNotImpl })
	for _, table := range []*[7]uintptr{&automationTable, &enumeratorTable, &factoryTable} {
		copy(table[:], unknown[:])
	}
	copy(automationTable[3:], []uintptr{
		syscall.NewCallback(getTypeInfoCount),
		syscall.NewCallback(func(*object, uint32, uint32, uintptr) uintptr { return eNotImpl }),
		syscall.NewCallback(getIDsOfNames),
		syscall.NewCallback(invoke),
	})
	copy(enumeratorTable[3:], []uintptr{
		syscall.NewCallback(enumNext),
		syscall.NewCallback(enumSkip),
		syscall.NewCallback(enumReset),
		notImplemented, // Clone
	})
	copy(factoryTable[3:], []uintptr{
		syscall.NewCallback(createInstance),
		syscall.NewCallback(func(*object, uintptr) uintptr { return sOK }), // LockServer
	})
}
