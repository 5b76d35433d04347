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
	if flat(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		own := reflect.New(v.Type().Elem())
		own.Elem().Set(v.Elem())
		detach(own.Elem())
		v.Set(own)
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		if !flat(v.Type().Elem()) {
			for i := range own.Len() {
				detach(own.Index(i))
			}
		}
		v.Set(own)
	case reflect.Map:
		if v.IsNil() {
			return
		}
		own := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(it.Value())
			detach(value)
			own.SetMapIndex(it.Key(), value)
		}
		v.Set(own)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				detach(field)
			}
		}
	}
}

// flats remembers flat by type: hosts are copied at every call.
var flats sync.Map

// flat tells whether values of a type point to nothing that could be changed through them.
func flat(t reflect.Type) bool {
	if known, ok := flats.Load(t); ok {
		return known == true
	}
	is := true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		is = false
	case reflect.Array:
		is = flat(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				is = is && flat(f.Type)
			}
		}
	}
	flats.Store(t, is)
	return is
}
