package packaging_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Tests of a resource or a data source are found by its name: go test -run TestAccPool_ runs those of gpu_pool.
func TestTestsOfAResourceHaveItsName(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for dir, name := range map[string]string{
		"changeforecast": "ChangeForecast", "gpuutilization": "Utilization", "inventory": "Inventory", "partitionconfig": "PartitionConfig",
		"partitionoptions": "PartitionOptions", "pool": "Pool", "share": "Share", "vmassignment": "VMAssignment",
	} {
		files, err := filepath.Glob(filepath.Join(root, "internal/provider", dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no tests: %v", dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				prefix, _, _ := strings.Cut(m[1], "_")
				if m[1] != "TestMain" && strings.TrimSuffix(prefix, "DataSource") != "TestAcc"+name {
					t.Errorf("%s: %s is not found by what it tests: call it TestAcc%s_%s", file, m[1], name, strings.TrimPrefix(m[1], "Test"))
				}
			}
		}
	}
}
