package functions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// dynamic is the value of a function's only argument. When it is not whole yet, the
// result is unknown; then, as after an error, there is nothing left to do.
func dynamic(ctx context.Context, req function.RunRequest, resp *function.RunResponse, name string, isNull error, unknown attr.Value) (tftypes.Value, bool) {
	var argument types.Dynamic
	if resp.Error = req.Arguments.Get(ctx, &argument); resp.Error != nil {
		return tftypes.Value{}, false
	}
	if argument.IsNull() || argument.IsUnderlyingValueNull() {
		resp.Error = function.NewArgumentFuncError(0, sentence(fmt.Errorf("%s: %w", name, isNull)))
		return tftypes.Value{}, false
	}
	value, err := argument.UnderlyingValue().ToTerraformValue(ctx)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return tftypes.Value{}, false
	}
	if !value.IsFullyKnown() {
		resp.Error = resp.Result.Set(ctx, unknown)
		return tftypes.Value{}, false
	}
	return value, true
}

// known finds attributes that an object has not.
func known(fields map[string]tftypes.Value, names []string) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no attribute %q, but %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// decodeFields decodes what is not null, by name. Names other than those given are errors.
func decodeFields(fields map[string]tftypes.Value, names []string, decode func(name string, v tftypes.Value) error) error {
	if err := known(fields, names); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if v := fields[name]; !v.IsNull() {
			if err := decode(name, v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// decodeObjects decodes a list of objects.
func decodeObjects[T any](v tftypes.Value, decode func(map[string]tftypes.Value) (T, error)) ([]T, error) {
	list, err := elements(v)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(list))
	for i, item := range list {
		fields, err := object(item)
		if err == nil {
			out[i], err = decode(fields)
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return out, nil
}

var errNotObject = errors.New("an object is wanted")

func object(v tftypes.Value) (map[string]tftypes.Value, error) {
	if v.IsNull() || !(v.Type().Is(tftypes.Object{}) || v.Type().Is(tftypes.Map{})) {
		return nil, errNotObject
	}
	var out map[string]tftypes.Value
	err := v.As(&out)
	return out, err
}

var errNotList = errors.New("a list is wanted")

func isList(v tftypes.Value) bool {
	t := v.Type()
	return !v.IsNull() && (t.Is(tftypes.List{}) || t.Is(tftypes.Tuple{}) || t.Is(tftypes.Set{}))
}

func elements(v tftypes.Value) ([]tftypes.Value, error) {
	if !isList(v) {
		return nil, errNotList
	}
	var out []tftypes.Value
	err := v.As(&out)
	return out, err
}

func texts(v tftypes.Value) ([]string, error) {
	list, err := elements(v)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(list))
	for i, item := range list {
		if item.IsNull() || !item.Type().Is(tftypes.String) {
			return nil, errors.New("a list of strings is wanted")
		}
		if err := item.As(&out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func indices(v tftypes.Value) ([]int, error) {
	list, err := elements(v)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(list))
	for i, item := range list {
		if out[i], err = whole(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func counts(v tftypes.Value) (map[string]int, error) {
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if out[name], err = whole(fields[name]); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return out, nil
}

func text(v tftypes.Value) (string, error) {
	if !v.Type().Is(tftypes.String) {
		return "", errors.New("a string is wanted")
	}
	var s string
	err := v.As(&s)
	return s, err
}

func truth(v tftypes.Value) (bool, error) {
	if !v.Type().Is(tftypes.Bool) {
		return false, errors.New("true or false is wanted")
	}
	var b bool
	err := v.As(&b)
	return b, err
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
