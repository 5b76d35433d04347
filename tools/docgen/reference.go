package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The tables of the reference page are made from the descriptions in the schema and from the
// import examples, which tests apply.

var aVar = regexp.MustCompile(`GPU_[A-Z_]+`)

// eachAttribute visits each attribute with the page that it is on and its path, in sorted order.
func eachAttribute(visit func(page, path, description string)) error {
	data, err := schemaJSON(context.Background())
	if err != nil {
		return err
	}
	var all document
	if err := json.Unmarshal(stripTypes(data), &all); err != nil {
		return err
	}
	var walk func(page, path string, of map[string]attribute)
	walk = func(page, path string, of map[string]attribute) {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			visit(page, path+name, of[name].Description)
			if n := of[name].Nested; n != nil {
				walk(page, path+name+".", n.Attributes)
			}
		}
	}
	ours := all.Providers["gpu"]
	walk("provider", "", ours.Provider.Block.Attributes)
	for _, name := range slices.Sorted(maps.Keys(ours.Resources)) {
		walk(name, "", ours.Resources[name].Block.Attributes)
	}
	for _, name := range slices.Sorted(maps.Keys(ours.DataSources)) {
		walk("data "+name, "", ours.DataSources[name].Block.Attributes)
	}
	return nil
}

// stripTypes leaves out the types of attributes, which tftypes does not read back.
func stripTypes(data []byte) []byte {
	var tree any
	if json.Unmarshal(data, &tree) != nil {
		return data
	}
	var strip func(any)
	strip = func(v any) {
		m, ok := v.(map[string]any)
		if !ok {
			return
		}
		for _, child := range m {
			strip(child)
		}
		if _, isAttribute := m["description_kind"]; isAttribute {
			delete(m, "type")
		}
		delete(m, "functions")
		delete(m, "resource_identity_schemas")
	}
	strip(tree)
	out, err := json.Marshal(tree)
	if err != nil {
		return data
	}
	return out
}

func environmentTable() string {
	var t table
	t.row("Variable", "Takes the place of")
	t.row("---", "---")
	of := map[string][]string{}
	_ = eachAttribute(func(page, path, description string) {
		for _, v := range aVar.FindAllString(description, -1) {
			if at := "`" + path + "` of `" + page + "`"; !slices.Contains(of[v], at) {
				of[v] = append(of[v], at)
			}
		}
	})
	for _, v := range slices.Sorted(maps.Keys(of)) {
		t.row("`"+v+"`", strings.Join(of[v], ", "))
	}
	return t.String()
}

func importsTable() string {
	var t table
	t.row("Resource", "Import id, such as", "What it is")
	t.row("---", "---", "---")
	files, _ := filepath.Glob(filepath.Join(root(), "examples", "resources", "*", "import.sh"))
	slices.Sort(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var says []string
		id := ""
		for line := range strings.Lines(string(text)) {
			if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "# "); ok {
				says = append(says, comment)
			} else if words := strings.Fields(line); len(words) == 4 {
				id = words[3]
			}
		}
		t.row("`"+filepath.Base(filepath.Dir(file))+"`", "`"+id+"`", strings.Join(says, " "))
	}
	return t.String()
}

// root is the repository, above the folder that docgen or its test runs in.
func root() string {
	dir, _ := os.Getwd()
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return "."
}
