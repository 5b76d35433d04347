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

// TestEveryOpIsKnown finds every op that is declared in the table of what ops need.
func TestEveryOpIsKnown(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "step.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ops := 0
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
		ops++
		unknown := (*change.UnknownOpError)(nil)
		if err := (change.Step{Op: change.Op(op)}).Validate(); errors.As(err, &unknown) {
			t.Error(err)
		}
		return true
	})
	if ops < 30 {
		t.Errorf("found %d ops", ops)
	}
	unknown := (*change.UnknownOpError)(nil)
	if err := (change.Step{Op: "fold_gpu"}).Validate(); !errors.As(err, &unknown) {
		t.Errorf("an op that there is none of: %v", err)
	}
}
