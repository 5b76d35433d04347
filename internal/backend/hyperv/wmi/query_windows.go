package wmi

import (
	"context"

	"github.com/go-ole/go-ole"
	cim "github.com/microsoft/wmi/pkg/wmiinstance"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// endOfRows is what an enumerator answers when it has no more (S_FALSE).
const endOfRows hyperv.Code = 1

// Query implements hyperv.WMI.
func (c *connection) Query(ctx context.Context, namespace, wql string, properties ...string) ([]hyperv.Row, error) {
	var rows []hyperv.Row
	err := c.perform(ctx, namespace, "query "+wql, func(r *request) error {
		rows = nil
		enum, err := r.session.PerformRawQuery(wql)
		if err != nil {
			return err
		}
		defer enum.Release()
		return all(enum, func(instance *ole.IDispatch) error {
			if err := r.ctx.Err(); err != nil {
				return err
			}
			next, err := row(instance, properties)
			rows = append(rows, next)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Get implements hyperv.WMI.
func (c *connection) Get(ctx context.Context, namespace, path string, properties ...string) (hyperv.Row, error) {
	var out hyperv.Row
	err := c.perform(ctx, namespace, "get "+path, func(r *request) error {
		return r.instance(path, func(i *cim.WmiInstance) (err error) {
			out, err = row(i.GetIDispatch(), properties)
			return err
		})
	})
	if err != nil {
		return hyperv.Row{}, err
	}
	return out, nil
}

// Text implements hyperv.WMI.
func (c *connection) Text(ctx context.Context, namespace, path string) (string, error) {
	var out string
	err := c.perform(ctx, namespace, "get "+path, func(r *request) error {
		return r.instance(path, func(i *cim.WmiInstance) (err error) {
			out, err = i.EmbeddedXMLInstance()
			if err == nil && out == "" {
				return unexpected("the instance has no text")
			}
			return err
		})
	})
	if err != nil {
		return "", err
	}
	return out, nil
}

// instance gives f the instance at a path, or the class.
func (r *request) instance(path string, f func(*cim.WmiInstance) error) error {
	i, err := r.session.GetInstance(path)
	if err != nil {
		return err
	}
	defer i.Close()
	if i.GetIDispatch() == nil {
		return unexpected("%s is no object", path)
	}
	return f(i)
}
