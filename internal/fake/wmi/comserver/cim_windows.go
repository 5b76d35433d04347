package comserver

import (
	"strconv"

	"github.com/go-ole/go-ole"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
)

const typeMismatch hyperv.Code = 0x80041005 // WBEM_E_TYPE_MISMATCH

// cimTypes are the numbers of the types (WbemCimtypeEnum).
var cimTypes = map[fakewmi.Type]int32{
	fakewmi.Boolean: 11, fakewmi.Uint8: 17, fakewmi.Uint16: 18, fakewmi.Uint32: 19, fakewmi.Uint64: 21,
	fakewmi.Sint32: 3, fakewmi.Sint64: 20, fakewmi.String: 8, fakewmi.Reference: 102, fakewmi.Datetime: 101,
	fakewmi.EmbeddedObject: 13,
}

// delivered is a property's value as automation delivers it: 64 bits as decimal
// digits, fewer as a signed number of 32.
func delivered(p fakewmi.Property, v any, embed func(*fakewmi.Object) any) (any, error) {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = delivered(p, v[i], embed); err != nil {
				return nil, err
			}
		}
		return out, nil
	case uint64:
		switch p.Type {
		case fakewmi.Uint64:
			return strconv.FormatUint(v, 10), nil
		case fakewmi.Uint8:
			return uint8(v), nil
		default:
			return int32(uint32(v)), nil
		}
	case int64:
		if p.Type == fakewmi.Sint64 {
			return strconv.FormatInt(v, 10), nil
		}
		return int32(v), nil
	case *fakewmi.Object:
		if v == nil {
			return nil, nil
		}
		return embed(v), nil
	default:
		return v, nil
	}
}

// received is the value that a client gives a property, before the property's type
// has its say. Types that automation knows and WMI does not are refused, as are
// objects of others.
func received(v *ole.VARIANT) (any, error) {
	switch v.VT {
	case ole.VT_NULL:
		return nil, nil
	case ole.VT_BOOL:
		return int16(v.Val) != 0, nil // VARIANT_BOOL has 16 bits
	case ole.VT_UI1:
		return uint8(v.Val), nil
	case ole.VT_I2:
		return int16(v.Val), nil
	case ole.VT_I4:
		return int32(v.Val), nil
	case ole.VT_BSTR:
		return v.ToString(), nil
	case ole.VT_DISPATCH:
		if face, ok := faceOf(v); ok {
			if o, ok := face.(*wbemObject); ok {
				return o.object.Clone(), nil
			}
		}
	case ole.VT_ARRAY | ole.VT_VARIANT:
		return receivedAll(v, func(e *ole.VARIANT) ole.VARIANT { return *e })
	case ole.VT_ARRAY | ole.VT_BSTR:
		return receivedAll(v, func(e *int64) ole.VARIANT { return ole.NewVariant(ole.VT_BSTR, *e) })
	}
	return nil, mismatch(v)
}

func receivedAll[T any](v *ole.VARIANT, element func(*T) ole.VARIANT) (any, error) {
	if v.Val == 0 {
		return nil, mismatch(v)
	}
	n, err := v.ToArray().TotalElements(1)
	if err != nil {
		return nil, err
	}
	list, done, err := elementsOf[T](v, int(n))
	if err != nil {
		return nil, err
	}
	defer done()
	out := make([]any, n)
	for i := range list {
		e := element(&list[i])
		if out[i], err = received(&e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func mismatch(v *ole.VARIANT) error {
	return &hyperv.Fault{Code: typeMismatch, Text: "Type mismatch: " + v.VT.String()}
}
