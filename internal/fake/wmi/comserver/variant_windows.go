package comserver

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/go-ole/go-ole"
	"golang.org/x/sys/windows"
)

var (
	oleaut32                  = windows.NewLazySystemDLL("oleaut32.dll")
	procSafeArrayCreateVector = oleaut32.NewProc("SafeArrayCreateVector")
	procSafeArrayAccessData   = oleaut32.NewProc("SafeArrayAccessData")
	procSafeArrayUnaccessData = oleaut32.NewProc("SafeArrayUnaccessData")
)

// propertyPut is the name under which automation passes the value of a property
// (DISPID_PROPERTYPUT).
const propertyPut = -3

// args are the arguments of a call in the order in which they were written.
type args struct {
	list []*ole.VARIANT
	// putting is set when there is one, and it is the value of a property.
	putting bool
}

// read reads DISPPARAMS, which hold the arguments from the last to the first.
func read(p *parameters) args {
	var a args
	raw := unsafe.Slice(p.args, p.count)
	for i := range slices.Backward(raw) {
		v := &raw[i]
		if v.VT == ole.VT_BYREF|ole.VT_VARIANT {
			v = held[ole.VARIANT](v)
		}
		a.list = append(a.list, v)
	}
	a.putting = p.namedCount == 1 && *p.named == propertyPut
	return a
}

// held is what a variant points to.
func held[T any](v *ole.VARIANT) *T { return *(**T)(unsafe.Pointer(&v.Val)) }

// given tells whether an optional argument was given.
func (a args) given(i int) bool {
	return i < len(a.list) && a.list[i].VT != ole.VT_ERROR && a.list[i].VT != ole.VT_EMPTY
}

// text is an argument that is a string, "" when it was not given.
func (a args) text(i int) (string, error) {
	if !a.given(i) {
		return "", nil
	}
	if a.list[i].VT != ole.VT_BSTR {
		return "", refusal(dispTypeMismatch)
	}
	return a.list[i].ToString(), nil
}

// number is an argument that is an integer, 0 when it was not given.
func (a args) number(i int) (int32, error) {
	if !a.given(i) {
		return 0, nil
	}
	switch a.list[i].VT {
	case ole.VT_I2:
		return int32(int16(a.list[i].Val)), nil
	case ole.VT_I4, ole.VT_UI4:
		return int32(a.list[i].Val), nil
	}
	return 0, refusal(dispTypeMismatch)
}

// object is an argument that is an object of ours, nil when it was not given.
func (a args) object(i int) (any, error) {
	if !a.given(i) || a.list[i].VT == ole.VT_NULL {
		return nil, nil
	}
	face, ok := faceOf(a.list[i])
	if !ok {
		return nil, refusal(dispTypeMismatch)
	}
	return face, nil
}

// faceOf is what stands behind a variant that holds an object of ours.
func faceOf(v *ole.VARIANT) (any, bool) {
	if v.VT != ole.VT_DISPATCH || v.Val == 0 {
		return nil, false
	}
	o := held[object](v)
	if !o.alive() {
		return nil, false
	}
	return o.face, true
}

// Values that have no type of their own in Go.
type (
	// void is what a method answers that returns nothing.
	void struct{}
	// noObject is an object that is not there.
	noObject struct{}
)

// variant makes a variant of a value. A reference to an object goes over into it.
func variant(v any) (ole.VARIANT, error) {
	switch v := v.(type) {
	case void:
		return ole.NewVariant(ole.VT_EMPTY, 0), nil
	case nil:
		return ole.NewVariant(ole.VT_NULL, 0), nil
	case noObject:
		return ole.NewVariant(ole.VT_DISPATCH, 0), nil
	case bool:
		if v {
			return ole.NewVariant(ole.VT_BOOL, 0xFFFF), nil
		}
		return ole.NewVariant(ole.VT_BOOL, 0), nil
	case uint8:
		return ole.NewVariant(ole.VT_UI1, int64(v)), nil
	case int32:
		return ole.NewVariant(ole.VT_I4, int64(v)), nil
	case string:
		return ole.NewVariant(ole.VT_BSTR, int64(uintptr(unsafe.Pointer(ole.SysAllocStringLen(v))))), nil
	case []any:
		return arrayOf(v)
	case *object:
		return ole.NewVariant(ole.VT_DISPATCH, v.number()), nil
	case *unknown:
		return ole.NewVariant(ole.VT_UNKNOWN, v.number()), nil
	default:
		return ole.VARIANT{}, fmt.Errorf("%T has no place in a variant", v)
	}
}

// arrayOf makes the array of variants that WMI delivers whatever the elements are.
func arrayOf(list []any) (ole.VARIANT, error) {
	array, _, _ := procSafeArrayCreateVector.Call(uintptr(ole.VT_VARIANT), 0, uintptr(len(list)))
	v := ole.NewVariant(ole.VT_ARRAY|ole.VT_VARIANT, int64(array))
	elements, done, err := elementsOf[ole.VARIANT](&v, len(list))
	if err != nil {
		return v, err
	}
	defer done()
	for i := range list {
		if elements[i], err = variant(list[i]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// elementsOf gives access to the elements of an array, until done is called.
func elementsOf[T any](v *ole.VARIANT, n int) (elements []T, done func(), err error) {
	var data *T
	if hr, _, _ := procSafeArrayAccessData.Call(uintptr(v.Val), uintptr(unsafe.Pointer(&data))); hr != 0 {
		return nil, nil, ole.NewError(hr)
	}
	unlock := func() { procSafeArrayUnaccessData.Call(uintptr(v.Val)) } //nolint:errcheck // it fails only for what is no array
	return unsafe.Slice(data, n), unlock, nil
}

// clearVariant frees what a variant holds.
func clearVariant(v *ole.VARIANT) { _ = v.Clear() }
