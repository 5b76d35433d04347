package wmi

import (
	"strings"

	"github.com/go-ole/go-ole"
	"github.com/go-ole/go-ole/oleutil"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// read reads a property of an automation object.
func read(object *ole.IDispatch, name string) (any, error) {
	var out any
	err := with(object, name, func(v *ole.VARIANT) (err error) {
		out, err = value(v)
		return err
	})
	return out, err
}

// with gives f the value of a property, and clears it when f is done.
func with(object *ole.IDispatch, name string, f func(*ole.VARIANT) error) error {
	v, err := oleutil.GetProperty(object, name)
	if err != nil {
		return err
	}
	defer free(v)
	return f(v)
}

// withObject is with for a property that is an object.
func withObject(object *ole.IDispatch, name string, f func(*ole.IDispatch) error) error {
	return with(object, name, func(v *ole.VARIANT) error {
		inner := v.ToIDispatch()
		if inner == nil {
			return unexpected("%s is no object", name)
		}
		return f(inner)
	})
}

// item gives f a member of a collection by its name.
func item(collection *ole.IDispatch, name string, f func(*ole.IDispatch) error) error {
	v, err := oleutil.CallMethod(collection, "Item", name)
	if err != nil {
		return err
	}
	defer free(v)
	inner := v.ToIDispatch()
	if inner == nil {
		return unexpected("%s is no object", name)
	}
	return f(inner)
}

// put sets a property of an automation object.
func put(object *ole.IDispatch, name string, v any) error {
	result, err := oleutil.PutProperty(object, name, v)
	if err != nil {
		return err
	}
	return result.Clear()
}

// row reads the named properties of an instance, and where it is.
func row(instance *ole.IDispatch, names []string) (hyperv.Row, error) {
	r := hyperv.Row{Path: path(instance), Values: make(map[string]any, len(names))}
	for _, name := range names {
		v, err := read(instance, name)
		switch {
		case err == nil:
			r.Values[name] = v
		case codeOf(err) != hyperv.UnknownName:
			return hyperv.Row{}, err
		}
	}
	return r, nil
}

// path is the full path of an instance. An instance whose keys were not selected, or
// that is embedded in another, has none: WMI then says only of which class it is, or
// refuses.
func path(instance *ole.IDispatch) string {
	var full string
	err := withObject(instance, "Path_", func(p *ole.IDispatch) error {
		v, err := read(p, "Path")
		full, _ = v.(string)
		return err
	})
	if err != nil || !strings.Contains(full, "=") {
		return ""
	}
	return full
}

// properties reads all properties of an object.
func properties(object *ole.IDispatch) (map[string]any, error) {
	values := map[string]any{}
	err := withObject(object, "Properties_", func(set *ole.IDispatch) error {
		return each(set, func(property *ole.IDispatch) error {
			name, err := read(property, "Name")
			if err != nil {
				return err
			}
			key, ok := name.(string)
			if !ok {
				return unexpected("a property without a name")
			}
			values[key], err = read(property, "Value")
			return err
		})
	})
	return values, err
}

// each gives f every member of a collection.
func each(collection *ole.IDispatch, f func(*ole.IDispatch) error) error {
	return with(collection, "_NewEnum", func(v *ole.VARIANT) error {
		unknown := v.ToIUnknown()
		if unknown == nil {
			return unexpected("the collection cannot be enumerated")
		}
		enum, err := unknown.IEnumVARIANT(ole.IID_IEnumVariant)
		if err != nil {
			return err
		}
		defer enum.Release()
		return all(enum, f)
	})
}

// all gives f whatever an enumerator has. An error in the middle is an error, not
// the end.
func all(enum *ole.IEnumVARIANT, f func(*ole.IDispatch) error) error {
	for {
		v, n, err := enum.Next(1)
		if n == 0 {
			if err == nil || codeOf(err) == endOfRows {
				return nil
			}
			return err
		}
		if err := one(&v, f); err != nil {
			return err
		}
	}
}

func one(v *ole.VARIANT, f func(*ole.IDispatch) error) error {
	defer free(v)
	object := v.ToIDispatch()
	if object == nil {
		return unexpected("the enumerator answers with a value of the type %s instead of an object", v.VT)
	}
	return f(object)
}
