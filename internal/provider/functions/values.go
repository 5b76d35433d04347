package functions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// writer is a function that makes something of its only argument, which may be of any type. Parts of that which are not known yet
// are passed over: what is written without them is thrown away, but what is wrong with the rest is told by the plan, before anything
// is changed.
type writer struct {
	name       string
	definition function.Definition
	write      func(tftypes.Value) (any, error)
}

// anything is the parameter of a writer.
func anything(name, description string) function.DynamicParameter {
	return function.DynamicParameter{Name: name, MarkdownDescription: description, AllowUnknownValues: true}
}

// Metadata implements function.Function.
func (w writer) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = w.name
}

// Definition implements function.Function.
func (w writer) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = w.definition
}

// Run implements function.Function. The result of an argument that is not whole yet is unknown.
func (w writer) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var argument types.Dynamic
	if resp.Error = req.Arguments.Get(ctx, &argument); resp.Error != nil {
		return
	}
	value, err := argument.ToTerraformValue(ctx)
	if err == nil && !value.IsKnown() {
		return
	}
	var out any
	if err == nil {
		out, err = w.write(value)
	}
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	if !value.IsFullyKnown() {
		return
	}
	resp.Error = resp.Result.Set(ctx, out)
}

// reader reads a value to where it belongs.
type reader func(tftypes.Value) error

func into[T any](to *T, read func(tftypes.Value) (T, error)) reader {
	return func(v tftypes.Value) (err error) {
		*to, err = read(v)
		return err
	}
}

// optional reads what may be missing.
func optional[T any](read func(tftypes.Value) (T, error)) func(tftypes.Value) (*T, error) {
	return func(v tftypes.Value) (*T, error) {
		out, err := read(v)
		return &out, err
	}
}

// decodeFields decodes what is neither null nor unknown, by name. Names without a reader are errors.
func decodeFields(fields map[string]tftypes.Value, readers map[string]reader) error {
	names := slices.Sorted(maps.Keys(fields))
	for _, name := range names {
		if readers[name] == nil {
			return fmt.Errorf("there is no attribute %q, but %s", name, strings.Join(slices.Sorted(maps.Keys(readers)), ", "))
		}
	}
	for _, name := range names {
		if v := fields[name]; v.IsKnown() && !v.IsNull() {
			if err := readers[name](v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// objects reads a list of objects.
func objects[T any](decode func(map[string]tftypes.Value) (T, error)) func(tftypes.Value) ([]T, error) {
	return func(v tftypes.Value) ([]T, error) {
		return elements(v, func(i int, item tftypes.Value) (out T, err error) {
			fields, err := object(item)
			if err == nil {
				out, err = decode(fields)
			}
			if err != nil {
				err = fmt.Errorf("entry %d: %w", i+1, err)
			}
			return out, err
		})
	}
}

func object(v tftypes.Value) (map[string]tftypes.Value, error) {
	if v.Type() == nil || v.IsNull() || !v.IsKnown() || !(v.Type().Is(tftypes.Object{}) || v.Type().Is(tftypes.Map{})) {
		return nil, errors.New("an object is wanted")
	}
	var out map[string]tftypes.Value
	err := v.As(&out)
	return out, err
}

// unknown reports whether there is a value that is not known yet.
func unknown(v tftypes.Value) bool { return v.Type() != nil && !v.IsKnown() }

func isList(v tftypes.Value) bool {
	t := v.Type()
	return !v.IsNull() && v.IsKnown() && (t.Is(tftypes.List{}) || t.Is(tftypes.Tuple{}) || t.Is(tftypes.Set{}))
}

// elements reads a list, without what is unknown of it: of a list in which nothing is known there is nil.
func elements[T any](v tftypes.Value, read func(i int, item tftypes.Value) (T, error)) ([]T, error) {
	if !isList(v) {
		return nil, errors.New("a list is wanted")
	}
	var list []tftypes.Value
	if err := v.As(&list); err != nil {
		return nil, err
	}
	if len(list) > 0 && !slices.ContainsFunc(list, tftypes.Value.IsKnown) {
		return nil, nil
	}
	out := make([]T, 0, len(list))
	for i, item := range list {
		if !item.IsKnown() {
			continue
		}
		one, err := read(i, item)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func texts(v tftypes.Value) ([]string, error) {
	return elements(v, func(_ int, item tftypes.Value) (string, error) {
		return scalar[string](item, tftypes.String, "a list of strings is wanted")
	})
}

func indices(v tftypes.Value) ([]int, error) {
	return elements(v, func(_ int, item tftypes.Value) (int, error) { return whole(item) })
}

// someCount stands for a number that is not known yet, so that its name is looked at. It is right for replicas and for instances.
const someCount = 2

func counts(v tftypes.Value) (map[string]int, error) {
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !fields[name].IsKnown() {
			out[name] = someCount
			continue
		}
		if out[name], err = whole(fields[name]); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return out, nil
}

func text(v tftypes.Value) (string, error) {
	return scalar[string](v, tftypes.String, "a string is wanted")
}

func truth(v tftypes.Value) (bool, error) {
	return scalar[bool](v, tftypes.Bool, "true or false is wanted")
}

func scalar[T any](v tftypes.Value, of tftypes.Type, otherwise string) (out T, err error) {
	if v.IsNull() || !v.Type().Is(of) {
		return out, errors.New(otherwise)
	}
	err = v.As(&out)
	return out, err
}

// decimal reads a number that may have digits after the point.
func decimal(v tftypes.Value) (float64, error) {
	n, err := scalar[big.Float](v, tftypes.Number, "a number is wanted")
	f, _ := n.Float64()
	return f, err
}

// whole reads a whole number that is small enough for any GPU.
func whole(v tftypes.Value) (int, error) {
	if v.IsNull() || !v.Type().Is(tftypes.Number) {
		return 0, errors.New("a number is wanted")
	}
	var n big.Float
	if err := v.As(&n); err != nil {
		return 0, err
	}
	i, accuracy := n.Int64()
	if accuracy != big.Exact || i < -1<<31 || i > 1<<31-1 {
		return 0, fmt.Errorf("%s is not a whole number", n.Text('g', 10))
	}
	return int(i), nil
}
