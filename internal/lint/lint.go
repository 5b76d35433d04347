// Package lint reads the text of Terraform configurations and finds the names that Terraform would drop without a word, and those
// that it would refuse, in what is the provider's.
//
// Terraform converts what is written for a nested attribute to the attribute's type, and leaves out what that type does not
// have (hashicorp/terraform#33570). Neither the provider nor a plan can tell that from what was never written; only the text can.
package lint

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	tfjson "github.com/hashicorp/terraform-json"
)

// schemaJSON is what the provider serves, as `terraform providers schema -json` prints it, without descriptions. A test of
// tools/docgen keeps it in step with the provider, and `make golden` writes it.
//
//go:embed schema.json
var schemaJSON []byte

var schema = sync.OnceValues(func() (*tfjson.ProviderSchema, error) {
	var all tfjson.ProviderSchemas
	if err := json.Unmarshal(schemaJSON, &all); err != nil {
		return nil, fmt.Errorf("the schema in this build cannot be read: %w", err)
	}
	return all.Schemas["gpu"], nil
})

// Rules that a finding may be of.
const (
	// Dropped is a name that Terraform leaves out without a word.
	Dropped = "dropped-name"
	// Refused is a name that Terraform refuses when it gets there.
	Refused = "unknown-name"
	// Syntax is what is no configuration.
	Syntax = "syntax"
)

// About says of each rule what it finds.
var About = map[string]string{
	Dropped: "A name in an object that Terraform drops without a word, so that the object means something else.",
	Refused: "A name that the provider does not have, which Terraform refuses.",
	Syntax:  "A file that cannot be read as Terraform's language.",
}

// Finding is one name.
type Finding struct {
	Rule  string
	Range hcl.Range
	// Of is what the name was written in, such as "gpu_partition_config.one: selector".
	Of string
	// Name is what was written, and Meant are the likeliest of the names that there are.
	Name  string
	Meant []string
	// Message has all of it in sentences.
	Message string
}

// Checked are the findings in some configurations, by file and line, and how many files were read.
type Checked struct {
	Findings []Finding
	Files    int
}

// checker reads configurations.
type checker struct {
	parser   *hclparse.Parser
	schema   *tfjson.ProviderSchema
	modules  map[string]*module // by folder
	findings []Finding
	files    int
}

// Check reads the configurations in some folders, and the local modules that they call.
func Check(folders ...string) (Checked, error) {
	s, err := schema()
	if err != nil {
		return Checked{}, err
	}
	c := &checker{parser: hclparse.NewParser(), schema: s, modules: map[string]*module{}}
	for _, folder := range folders {
		m, err := c.load(filepath.Clean(folder))
		if err != nil {
			return Checked{}, err
		}
		if len(m.bodies) == 0 {
			return Checked{}, fmt.Errorf("%s has no configuration of Terraform", folder)
		}
		if err := c.values(m); err != nil {
			return Checked{}, err
		}
	}
	slices.SortFunc(c.findings, func(a, b Finding) int {
		if n := strings.Compare(a.Range.Filename, b.Range.Filename); n != 0 {
			return n
		}
		if n := a.Range.Start.Byte - b.Range.Start.Byte; n != 0 {
			return n
		}
		return strings.Compare(a.Message, b.Message)
	})
	// A local that several resources use is one text.
	c.findings = slices.CompactFunc(c.findings, func(a, b Finding) bool { return a.Range == b.Range && a.Rule == b.Rule })
	return Checked{c.findings, c.files}, nil
}

// parse reads a file. What it has before and after a mistake in its syntax counts, too.
func (c *checker) parse(file string) (hcl.Body, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c.files++
	read := c.parser.ParseHCL
	if strings.HasSuffix(file, ".json") {
		read = c.parser.ParseJSON
	}
	f, diags := read(text, file)
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		at := hcl.Range{Filename: file, Start: hcl.InitialPos, End: hcl.InitialPos}
		if d.Subject != nil {
			at = *d.Subject
		}
		c.findings = append(c.findings, Finding{Rule: Syntax, Range: at, Message: strings.TrimSuffix(d.Summary, ".") + ". " + d.Detail})
	}
	if f == nil {
		return nil, nil
	}
	return f.Body, nil
}
