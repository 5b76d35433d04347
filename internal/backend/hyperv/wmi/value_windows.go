package wmi

import (
	"strconv"
	"unsafe"

	"github.com/go-ole/go-ole"
	"golang.org/x/sys/windows"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

var (
	oleaut32                  = windows.NewLazySystemDLL("oleaut32.dll")
	procSafeArrayAccessData   = oleaut32.NewProc("SafeArrayAccessData")
	procSafeArrayUnaccessData = oleaut32.NewProc("SafeArrayUnaccessData")
)

// value converts what automation delivers into what the seam promises. It copies
// everything, embedded objects too, so that the variant can be cleared afterwards.
func value(v *ole.VARIANT) (any, error) {
	if v.VT&ole.VT_ARRAY != 0 {
		return elements(v)
	}
	switch v.VT {
	case ole.VT_EMPTY, ole.VT_NULL:
		return nil, nil
	case ole.VT_BSTR:
		return v.ToString(), nil
	case ole.VT_BOOL:
		return int16(v.Val) != 0, nil // VARIANT_BOOL has 16 bits
	case ole.VT_I1:
		return int32(int8(v.Val)), nil
	case ole.VT_UI1:
		return int32(uint8(v.Val)), nil
	case ole.VT_I2:
		return int32(int16(v.Val)), nil
	case ole.VT_UI2:
		return int32(uint16(v.Val)), nil
	case ole.VT_I4, ole.VT_UI4:
		return int32(v.Val), nil
	case ole.VT_I8:
		return strconv.FormatInt(v.Val, 10), nil
	case ole.VT_UI8:
		return strconv.FormatUint(uint64(v.Val), 10), nil
	case ole.VT_R4, ole.VT_R8:
		return decimal(v), nil
	case ole.VT_DISPATCH:
		if v.Val == 0 {
			return nil, nil
		}
		values, err := properties(v.ToIDispatch())
		if err != nil {
			return nil, err
		}
		return hyperv.Row{Values: values}, nil
	default:
		return nil, unexpected("a value of the type %s, which WMI does not use", v.VT)
	}
}

// free frees what a variant holds, objects too. It fails only for what is no variant.
func free(v *ole.VARIANT) { _ = v.Clear() }

func decimal(v *ole.VARIANT) string {
	if f, ok := v.Value().(float64); ok {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	f, _ := v.Value().(float32)
	return strconv.FormatFloat(float64(f), 'g', -1, 32)
}

// elements converts an array where it lies. go-ole would release the embedded
// objects in it before they could be read.
func elements(v *ole.VARIANT) (any, error) {
	if v.Val == 0 {
		return nil, nil
	}
	array := v.ToArray()
	kind, err := array.GetType()
	if err != nil {
		return nil, err
	}
	n, err := array.TotalElements(1)
	if err != nil {
		return nil, err
	}
	var data unsafe.Pointer
	if hr, _, _ := procSafeArrayAccessData.Call(uintptr(v.Val), uintptr(unsafe.Pointer(&data))); hr != 0 {
		return nil, ole.NewError(hr)
	}
	defer procSafeArrayUnaccessData.Call(uintptr(v.Val)) //nolint:errcheck // it fails only for what is no array

	switch ole.VT(kind) {
	case ole.VT_VARIANT:
		return convert(unsafe.Slice((*ole.VARIANT)(data), n), value)
	case ole.VT_BSTR:
		return convert(unsafe.Slice((**uint16)(data), n), func(s **uint16) (any, error) {
			return ole.BstrToString(*s), nil
		})
	case ole.VT_UI1:
		return convert(unsafe.Slice((*uint8)(data), n), func(b *uint8) (any, error) { return int32(*b), nil })
	case ole.VT_I4:
		return convert(unsafe.Slice((*int32)(data), n), func(i *int32) (any, error) { return *i, nil })
	default:
		return nil, unexpected("an array of the type %s, which WMI does not use", ole.VT(kind))
	}
}

func convert[T any](list []T, f func(*T) (any, error)) (any, error) {
	out := make([]any, len(list))
	for i := range list {
		v, err := f(&list[i])
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}
