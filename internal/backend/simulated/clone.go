package simulated

import (
	"reflect"
	"sync"
)

// clone copies a value with everything that it points to, so that a caller may keep
// or change what it was given while the cache stays as the file is. Unexported
// fields (a time's location) are shared.
func clone[T any](v T) T {
	out := v
	detach(reflect.ValueOf(&out).Elem())
	return out
}

// detach gives a value that shares what it points to a copy of it.
func detach(v reflect.Value) {
	if d := detacherOf(v.Type()); d != nil {
		d(v)
	}
}

// detacher is detach for the values of one type, which is looked at once: hosts are copied
// at every call. It is nil for a type whose values point to nothing that could be changed
// through them.
type detacher func(reflect.Value)

var detachers sync.Map // by type

func detacherOf(t reflect.Type) detacher {
	if known, ok := detachers.Load(t); ok {
		d, _ := known.(detacher)
		return d
	}
	d := newDetacher(t)
	detachers.Store(t, d)
	return d
}

func newDetacher(t reflect.Type) detacher {
	switch t.Kind() {
	case reflect.Pointer:
		return func(v reflect.Value) {
			if v.IsNil() {
				return
			}
			own := reflect.New(t.Elem())
			own.Elem().Set(v.Elem())
			detach(own.Elem())
			v.Set(own)
		}
	case reflect.Slice:
		element := detacherOf(t.Elem())
		return func(v reflect.Value) {
			if v.IsNil() {
				return
			}
			own := reflect.MakeSlice(t, v.Len(), v.Len())
			reflect.Copy(own, v)
			if element != nil {
				for i := range own.Len() {
					element(own.Index(i))
				}
			}
			v.Set(own)
		}
	case reflect.Map:
		return func(v reflect.Value) {
			if v.IsNil() {
				return
			}
			own := reflect.MakeMapWithSize(t, v.Len())
			for it := v.MapRange(); it.Next(); {
				value := reflect.New(t.Elem()).Elem()
				value.Set(it.Value())
				detach(value)
				own.SetMapIndex(it.Key(), value)
			}
			v.Set(own)
		}
	case reflect.Struct:
		type field struct {
			index  int
			detach detacher
		}
		var fields []field
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				if d := detacherOf(f.Type); d != nil {
					fields = append(fields, field{i, d})
				}
			}
		}
		if len(fields) == 0 {
			return nil
		}
		return func(v reflect.Value) {
			for _, f := range fields {
				f.detach(v.Field(f.index))
			}
		}
	default:
		return nil
	}
}
