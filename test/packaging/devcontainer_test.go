package packaging_test

import (
	"encoding/json"
	"go/version"
	"regexp"
	"strings"
	"testing"
)

// A container in which an editor opens the checkout, or any other program that reads containers.dev's format, is set up by
// .ci/run itself, from an image that stays the same, with a Go that builds this module.
func TestDevelopmentContainer(t *testing.T) {
	t.Parallel()
	var container struct { // what the format's schema has of these properties
		Name  string `json:"name"`
		Build struct {
			Dockerfile string `json:"dockerfile"`
		} `json:"build"`
		Init            bool   `json:"init"`
		OnCreateCommand string `json:"onCreateCommand"`
		Customizations  map[string]struct {
			Extensions []string `json:"extensions"`
		} `json:"customizations"`
	}
	decoder := json.NewDecoder(strings.NewReader(read(t, ".devcontainer/devcontainer.json")))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&container); err != nil {
		t.Fatal(err)
	}
	if !container.Init {
		t.Error("without an init the agents and daemons that tests kill are never gone")
	}

	script, phase, _ := strings.Cut(container.OnCreateCommand, " ")
	if !regexp.MustCompile(`(?m)^phase ` + regexp.QuoteMeta(phase) + ` make tools$`).MatchString(read(t, script)) {
		t.Errorf("it is set up by %q, which is no phase that builds the tools", container.OnCreateCommand)
	}

	from := regexp.MustCompile(`(?m)^FROM golang:(\d+\.\d+\.\d+)-\w+@sha256:[0-9a-f]{64}$`).
		FindAllStringSubmatch(read(t, ".devcontainer/"+container.Build.Dockerfile), -1)
	if len(from) != 1 {
		t.Fatalf("its image is not one with a version of Go and a digest: %q", from)
	}
	needs := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "go.mod"))
	if needs == nil || version.Compare("go"+from[0][1], "go"+needs[1]) < 0 {
		t.Errorf("its image has Go %s, and the module needs %q", from[0][1], needs)
	}
}
