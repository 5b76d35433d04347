package packaging_test

import (
	"path/filepath"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// changie orders fragments by their times, and those of equal times by chance: two runs would write two changelogs.
func TestFragmentsOfTheChangelogHaveTimesOfTheirOwn(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".changes/unreleased/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	at := map[time.Time]string{}
	for _, file := range files {
		name := filepath.Base(file)
		var fragment struct {
			Time time.Time
		}
		if err := yaml.Unmarshal([]byte(read(t, ".changes/unreleased/"+name)), &fragment); err != nil || fragment.Time.IsZero() {
			t.Errorf("%s has no time: %v", name, err)
			continue
		}
		if other := at[fragment.Time.UTC()]; other != "" {
			t.Errorf("%s and %s both have the time %s: give one of them another", other, name, fragment.Time)
		}
		at[fragment.Time.UTC()] = name
	}
}
