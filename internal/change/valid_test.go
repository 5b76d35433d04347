package change_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
)

// ops are all that are declared.
func ops(t *testing.T) []change.Op {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "step.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []change.Op
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Op" {
			return true
		}
		value, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%s is no literal", spec.Names[0])
		}
		op, err := strconv.Unquote(value.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, change.Op(op))
		return true
	})
	if len(out) < 30 {
		t.Fatalf("found %d ops", len(out))
	}
	return out
}

// TestEveryOpIsKnown finds every op that is declared in the table of what ops need.
func TestEveryOpIsKnown(t *testing.T) {
	unknown := (*change.UnknownOpError)(nil)
	for _, op := range ops(t) {
		if err := (change.Step{Op: op}).Validate(); errors.As(err, &unknown) {
			t.Error(err)
		}
	}
	if err := (change.Step{Op: "fold_gpu"}).Validate(); !errors.As(err, &unknown) {
		t.Errorf("an op that there is none of: %v", err)
	}
}
