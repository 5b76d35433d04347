//go:build linux

package cdi_test

import (
	"math"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
)

func TestValidateName(t *testing.T) {
	for name, says := range map[string]string{
		"a": "", "7": "", "team-a_0.x:y": "", strings.Repeat("a", 128): "",
		"":                       "empty",
		"-a":                     "should start with a letter or digit",
		"a-":                     "should end with a letter or digit",
		"team a":                 "invalid character ' '",
		"team/a":                 "invalid character '/'",
		"..":                     "should start with",
		"größe":                  "invalid character 'ö'",
		strings.Repeat("a", 129): "129 characters, but at most 128",
	} {
		err := cdi.ValidateName(name)
		switch {
		case says == "" && err != nil:
			t.Errorf("%q: %v", name, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `"`+name+`"`)):
			t.Errorf("%q: got %v, want %s", name, err, says)
		}
	}
}

func TestValidate(t *testing.T) {
	two := 2
	for name, test := range map[string]struct {
		change func(*cdi.Share)
		says   string
	}{
		"all right":                  {func(*cdi.Share) {}, ""},
		"its daemon's defaults":      {func(s *cdi.Share) { s.MPS = &cdi.MPS{Pipe: "/p"} }, ""},
		"no daemon":                  {func(s *cdi.Share) { s.MPS = nil }, ""},
		"all threads":                {func(s *cdi.Share) { s.MPS.ThreadPercentage = 100 }, ""},
		"a name":                     {func(s *cdi.Share) { s.Name = "a b" }, "cannot be a CDI device"},
		"no GPU":                     {func(s *cdi.Share) { s.Devices = nil }, "at least one is wanted"},
		"no UUID":                    {func(s *cdi.Share) { s.Devices[0].UUID = "" }, "/dev/nvidia0 has no UUID"},
		"a GPU twice":                {func(s *cdi.Share) { s.Devices = append(s.Devices, s.Devices[0]) }, gpu0 + " is in it twice"},
		"no such minor":              {func(s *cdi.Share) { s.Devices[0].Minor = -1 }, "-1 is below zero"},
		"MIG devices":                {func(s *cdi.Share) { s.Devices = append(s.Devices, instance().Devices...) }, "1 MIG devices among 2 GPUs"},
		"more requested than limit":  {func(s *cdi.Share) { s.MemoryRequest = s.MemoryLimit + 1<<20 }, "its limit is 20.0 GiB"},
		"memory in bytes":            {func(s *cdi.Share) { s.MemoryLimit++ }, "whole MiB"},
		"pinned memory in bytes":     {func(s *cdi.Share) { s.MPS.MemoryLimit++ }, "whole MiB"},
		"no pipes":                   {func(s *cdi.Share) { s.MPS.Pipe = "" }, `pipe directory ""`},
		"pipes somewhere":            {func(s *cdi.Share) { s.MPS.Pipe = "mps" }, `pipe directory "mps"`},
		"shared memory somewhere":    {func(s *cdi.Share) { s.MPS.Shm = "shm" }, `shared memory "shm"`},
		"more than all threads":      {func(s *cdi.Share) { s.MPS.ThreadPercentage = 101 }, "percentage is 101"},
		"fewer than no threads":      {func(s *cdi.Share) { s.MPS.ThreadPercentage = -1 }, "percentage is -1"},
		"not a number":               {func(s *cdi.Share) { s.MPS.ThreadPercentage = math.NaN() }, "percentage is NaN"},
		"a priority that is unknown": {func(s *cdi.Share) { s.MPS.Priority = &two }, "priority is 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fraction()
			test.change(s)
			err := s.Validate()
			if test.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), `share "`+s.Name+`"`) {
				t.Errorf("got %v, want %s", err, test.says)
			}
			h := newHost(t)
			if err := h.Write(s); err == nil || h.shares() != "" {
				t.Errorf("it was written: %v", err)
			}
		})
	}
}
