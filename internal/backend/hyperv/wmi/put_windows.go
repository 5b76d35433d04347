package wmi

import (
	"context"
	"fmt"

	"github.com/go-ole/go-ole"
	cim "github.com/microsoft/wmi/pkg/wmiinstance"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// Put implements hyperv.WMI.
func (c *connection) Put(ctx context.Context, namespace, path string, set map[string]any) error {
	return c.perform(ctx, namespace, "put "+path, func(r *request) error {
		return r.instance(path, func(i *cim.WmiInstance) error {
			if err := change(i.GetIDispatch(), set); err != nil {
				return err
			}
			if err := r.send(); err != nil {
				return err
			}
			return i.Commit()
		})
	})
}

// change sets properties of an object, and of the objects embedded in it.
func change(object *ole.IDispatch, set map[string]any) error {
	for name, v := range set {
		inner, ok := v.(map[string]any)
		if !ok {
			if err := supported(name, v); err != nil {
				return err
			}
			if err := put(object, name, v); err != nil {
				return about(name, err)
			}
			continue
		}
		// The embedded object is a copy: once changed, it is put back.
		err := with(object, name, func(v *ole.VARIANT) error {
			embedded := v.ToIDispatch()
			if embedded == nil {
				return &hyperv.Fault{Code: typeMismatch, Text: "there is no object to change"}
			}
			if err := change(embedded, inner); err != nil {
				return err
			}
			return put(object, name, embedded)
		})
		if err != nil {
			return about(name, err)
		}
	}
	return nil
}

// supported refuses what go-ole would panic on, or pass on as another type.
func supported(name string, v any) error {
	switch v.(type) {
	case nil, string, bool, int32, []string:
		return nil
	}
	return &hyperv.Fault{Code: hyperv.InvalidParameter, Text: fmt.Sprintf("%s cannot be a %T", name, v)}
}

// about says in an error which property or parameter it is about.
func about(name string, err error) error {
	f, ok := fault("", err).(*hyperv.Fault) //nolint:errorlint // fault returns it as such
	if !ok {
		return err
	}
	if f.Text == "" {
		f.Text = name
	} else {
		f.Text = name + ": " + f.Text
	}
	return f
}
