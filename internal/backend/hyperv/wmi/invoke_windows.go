package wmi

import (
	"context"
	"fmt"

	"github.com/go-ole/go-ole"
	"github.com/go-ole/go-ole/oleutil"
	cim "github.com/microsoft/wmi/pkg/wmiinstance"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

const returnValue = "ReturnValue"

// Invoke implements hyperv.WMI. The path of a class calls a static method.
//
// The library's own way, WmiMethod.Execute, drops the error of a parameter that the
// method does not have, and the method then runs without it.
func (c *connection) Invoke(ctx context.Context, namespace, path, method string, in map[string]any) (hyperv.Result, error) {
	var out hyperv.Result
	err := c.perform(ctx, namespace, "call "+method, func(r *request) error {
		return r.instance(path, func(i *cim.WmiInstance) error {
			args := []any{method}
			parameters, err := newParameters(i.GetIDispatch(), method)
			if err != nil {
				return err
			}
			if parameters != nil {
				defer free(parameters)
				args = append(args, parameters)
			}
			if err := fill(parameters, method, in); err != nil {
				return err
			}
			if err := r.send(); err != nil {
				return err
			}
			answer, err := oleutil.CallMethod(i.GetIDispatch(), "ExecMethod_", args...)
			if err != nil {
				return err
			}
			defer free(answer)
			out, err = result(method, answer)
			return err
		})
	})
	if err != nil {
		return hyperv.Result{}, err
	}
	return out, nil
}

// newParameters makes an object to put a method's in parameters into, nil when the
// method has none.
func newParameters(object *ole.IDispatch, method string) (*ole.VARIANT, error) {
	var parameters *ole.VARIANT
	err := withObject(object, "Methods_", func(methods *ole.IDispatch) error {
		return item(methods, method, func(m *ole.IDispatch) error {
			return with(m, "InParameters", func(class *ole.VARIANT) (err error) {
				if class.ToIDispatch() == nil {
					return nil
				}
				parameters, err = oleutil.CallMethod(class.ToIDispatch(), "SpawnInstance_")
				if err == nil && parameters.ToIDispatch() == nil {
					return unexpected("the parameters are no object")
				}
				return err
			})
		})
	})
	if codeOf(err) == hyperv.NotFound {
		return nil, &hyperv.Fault{Code: hyperv.InvalidMethod, Text: "the class has no such method on this build of Windows"}
	}
	return parameters, err
}

// fill sets a method's in parameters.
func fill(parameters *ole.VARIANT, method string, in map[string]any) error {
	if parameters == nil {
		for name := range in {
			return notAParameter(method, name)
		}
		return nil
	}
	return withObject(parameters.ToIDispatch(), "Properties_", func(set *ole.IDispatch) error {
		for name, v := range in {
			if err := supported(name, v); err != nil {
				return err
			}
			known := false
			err := item(set, name, func(parameter *ole.IDispatch) error {
				known = true
				return put(parameter, "Value", v)
			})
			switch {
			case !known && codeOf(err) == hyperv.NotFound:
				return notAParameter(method, name)
			case err != nil:
				return about(name, err)
			}
		}
		return nil
	})
}

func notAParameter(method, name string) error {
	return &hyperv.Fault{Code: hyperv.InvalidParameter, Text: fmt.Sprintf("%s has no in parameter %s", method, name)}
}

// result reads what a method answered. One that returns nothing and has no out
// parameters, as many of the cluster's, answers with no object at all.
func result(method string, answer *ole.VARIANT) (hyperv.Result, error) {
	object := answer.ToIDispatch()
	if object == nil {
		return hyperv.Result{}, nil
	}
	values, err := properties(object)
	if err != nil {
		return hyperv.Result{}, err
	}
	out := hyperv.Result{Out: values}
	v, ok := values[returnValue]
	if !ok {
		return out, nil
	}
	delete(values, returnValue)
	n, ok := v.(int32)
	if !ok {
		return hyperv.Result{}, unexpected("%s answered %v as its return value", method, v)
	}
	out.ReturnValue = uint32(n)
	return out, nil
}
