package timeslice_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/timeslice"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const id = "GPU-5a1ce000-0000-4000-8000-000000000001"

// smi is an nvidia-smi that keeps the interval of a GPU in a file, with the table and the
// messages of the program of driver 535.
const smi = `#!/bin/sh
state=${0%/*}/timeslice
[ "$1 $2" = "compute-policy -i" ] || exit 2
[ "$3" = GPU-5a1ce000-0000-4000-8000-000000000001 ] || { echo "No devices were found"; exit 6; }
case $4 in
-l)
  case $(cat "$state") in 0) name=Default ;; 1) name=Short ;; 2) name=Medium ;; 3) name=Long ;; esac
  echo "+-------------------------------------+"
  echo "| GPU compute policies:               |"
  echo "| GPU     Name           Value        |"
  echo "|=====================================|"
  printf '|   0     Timeslice      %-13s|\n' "$name"
  echo "+-------------------------------------+"
  ;;
--set-timeslice)
  echo "$5" >"$state"
  echo "Successfully set timeslice policy with value $5 for GPU 0"
  ;;
*) exit 2 ;;
esac
`

// install writes a program, and the number of the interval that it finds.
func install(t *testing.T, script, interval string) timeslice.SMI {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"nvidia-smi": script, "timeslice": interval} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return timeslice.SMI{Program: filepath.Join(dir, "nvidia-smi")}
}

func TestSet(t *testing.T) {
	s := install(t, smi, "0")
	for _, tt := range []struct {
		want    gpu.TimeSlice
		changed bool
	}{
		{gpu.TimeSliceDefault, false},
		{gpu.TimeSliceLong, true},
		{gpu.TimeSliceLong, false},
		{gpu.TimeSliceShort, true},
		{gpu.TimeSliceMedium, true},
		{gpu.TimeSliceDefault, true},
	} {
		changed, err := s.Set(t.Context(), id, tt.want)
		if err != nil || changed != tt.changed {
			t.Errorf("Set(%s): %v, %v", tt.want, changed, err)
		}
		if got, err := s.Read(t.Context(), id); err != nil || got != tt.want {
			t.Errorf("read back: %s, %v, and %s was wanted", got, err, tt.want)
		}
	}
}

// TestReadAll has the intervals of all GPUs of one run, by their numbers.
func TestReadAll(t *testing.T) {
	s := install(t, `#!/bin/sh
[ "$*" = "compute-policy -l" ] || exit 2
cat <<END
+-------------------------------------+
| GPU compute policies:               |
| GPU     Name           Value        |
|=====================================|
|   0     Timeslice      Default      |
|   1     Timeslice      Long         |
|  12     Timeslice      Short        |
+-------------------------------------+
END
`, "0")
	got, err := s.ReadAll(t.Context())
	want := map[int]gpu.TimeSlice{0: gpu.TimeSliceDefault, 1: gpu.TimeSliceLong, 12: gpu.TimeSliceShort}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("they are %v, %v", got, err)
	}
	_, err = install(t, "#!/bin/sh\necho no driver; exit 9", "0").ReadAll(t.Context())
	refused(t, err, backend.Unavailable, "(all GPUs)", "no driver")
}

// TestUnread sets what cannot be read back, and believes what nvidia-smi says of it.
func TestUnread(t *testing.T) {
	blind := `case $4 in -l) echo "Not Supported"; exit 3 ;; esac
echo "$5" >"${0%/*}/timeslice"`
	s := install(t, "#!/bin/sh\n"+blind, "0")
	if changed, err := s.Set(t.Context(), id, gpu.TimeSliceLong); err != nil || !changed {
		t.Error(changed, err)
	}
	if got, err := os.ReadFile(filepath.Join(filepath.Dir(s.Program), "timeslice")); err != nil || strings.TrimSpace(string(got)) != "3" {
		t.Errorf("it was set to %q, %v", got, err)
	}
	s = install(t, "#!/bin/sh\n"+blind+"\necho 'Failed to set timeslice policy with value LONG for GPU 0 : Unknown Error'", "0")
	_, err := s.Set(t.Context(), id, gpu.TimeSliceLong)
	refused(t, err, backend.Failed, "Failed to set timeslice policy")
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		name, script, gpu string
		want              gpu.TimeSlice
		code              backend.Code
		words             string
	}{
		{"no such interval", smi, id, "forever", backend.InvalidParameter, `"forever" is none of [default short medium long]`},
		{"no such GPU", smi, "GPU-other", gpu.TimeSliceLong, backend.NotFound, "No devices were found"},
		{
			"not root", strings.Replace(smi, "--set-timeslice)", "--set-timeslice) echo Insufficient Permissions; exit 4", 1),
			id, gpu.TimeSliceLong, backend.AccessDenied, "Insufficient Permissions",
		},
		{
			"no driver", "#!/bin/sh\necho \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\"; exit 9",
			id, gpu.TimeSliceLong, backend.Unavailable, "couldn't communicate",
		},
		{
			"a GPU in MIG mode", "#!/bin/sh\necho 'Failed to set timeslice for requested devices : Not Supported'; exit 255",
			id, gpu.TimeSliceLong, backend.NotSupported, "Not Supported",
		},
		{
			"a setting that does not stay", strings.Replace(smi, `echo "$5" >"$state"`, ":", 1), id, gpu.TimeSliceLong,
			backend.Failed, "long was wanted, and it stays at default: Successfully set",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := install(t, tt.script, "0").Set(t.Context(), tt.gpu, tt.want)
			refused(t, err, tt.code, "(GPU "+tt.gpu+")", tt.words)
		})
	}
	_, err := timeslice.SMI{Program: filepath.Join(t.TempDir(), "nvidia-smi")}.Read(t.Context(), id)
	refused(t, err, backend.Unavailable, "is not installed")
}

func refused(t *testing.T, err error, code backend.Code, words ...string) {
	t.Helper()
	known, ok := errors.AsType[*backend.Error](err)
	if !ok || known.Code != code {
		t.Fatalf("the error is %v, and code %s was wanted", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// TestHangs gives up an nvidia-smi that does not end, and one that leaves its output open.
func TestHangs(t *testing.T) {
	for _, script := range []string{"#!/bin/sh\nexec sleep 600\n", "#!/bin/sh\nsleep 600 &\nwait\n"} {
		s := install(t, script, "0")
		s.Limit = 50 * time.Millisecond
		_, read := s.Read(t.Context(), id)
		_, set := s.Set(t.Context(), id, gpu.TimeSliceLong)
		for _, err := range []error{read, set} {
			if err == nil || !strings.Contains(err.Error(), "has not ended within 50ms: the driver may hang") {
				t.Errorf("it says %v", err)
			}
		}
	}
}
