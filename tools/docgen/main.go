// Command docgen prepares what tfplugindocs renders: the provider's schema, taken
// from the provider itself so that no Terraform is needed, and the templates, with
// the tables that come from the code filled in.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	templates := flag.String("templates", "templates", "directory of the templates")
	out := flag.String("out", "bin/docs", "directory to write schema.json and templates/ to")
	pages := flag.String("shelve", "", "directory of pages that tfplugindocs has rendered, to put each into its subcategory, and nothing else")
	flag.Parse()
	var err error
	if *pages != "" {
		err = shelve(*pages)
	} else {
		err = run(context.Background(), *templates, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, templates, out string) error {
	schema, err := schemaJSON(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "schema.json"), schema, 0o644); err != nil {
		return err
	}
	fleet, err := fleetSchema()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "fleet.schema.json"), append(fleet, '\n'), 0o644); err != nil {
		return err
	}
	staged := filepath.Join(out, "templates")
	if err := os.RemoveAll(staged); err != nil {
		return err
	}
	return stage(templates, staged)
}

// stage copies the templates and fills in the generated tables.
func stage(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		filled, err := fill(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return os.WriteFile(target, []byte(filled), 0o644)
	})
}
