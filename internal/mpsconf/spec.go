package mpsconf

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Spec is a declared daemon.
type Spec struct {
	// Name is the daemon's, once per host. Its unit and its directories have it too.
	Name string `json:"name"`
	// Devices are the UUIDs of the GPUs, or of the one MIG device, that clients see, in
	// the order in which clients count them.
	Devices []string `json:"devices"`
	// User is the user id whose processes may be clients, nobody else's but root's. It
	// is nil with MultiUser: then processes of all users share a server.
	User      *int `json:"user,omitempty"`
	MultiUser bool `json:"multi_user,omitempty"`
	// StaticPartitions is how it is started: its clients name a partition of multiprocessors.
	StaticPartitions bool `json:"static_partitions,omitempty"`
	Settings
}

// Settings are what a daemon gives its servers, and so every client process.
type Settings struct {
	// ActiveThreadPercentage is how much of a GPU's multiprocessors a client may use: more
	// than 0, at most 100, in tenths. 0 is 100, no limit.
	ActiveThreadPercentage float64 `json:"active_thread_percentage,omitempty"`
	// PinnedMemory limits the memory of a client on a device, by the device's UUID. See
	// gpu.RoundMPSLimit for what a daemon takes.
	PinnedMemory map[string]gpu.Bytes `json:"pinned_memory,omitempty"`
	// ClientPriority is 0, normal, or 1, below normal.
	ClientPriority int `json:"client_priority,omitempty"`
}

const allThreads = 100

// Percentage is the active thread percentage as a daemon shows it.
func (s Settings) Percentage() float64 {
	if s.ActiveThreadPercentage == 0 {
		return allThreads
	}
	return s.ActiveThreadPercentage
}

// Equal reports whether two settings are the same for a daemon.
func (s Settings) Equal(other Settings) bool {
	none := func(_ string, limit gpu.Bytes) bool { return limit == 0 }
	mine, theirs := maps.Clone(s.PinnedMemory), maps.Clone(other.PinnedMemory)
	maps.DeleteFunc(mine, none)
	maps.DeleteFunc(theirs, none)
	return s.Percentage() == other.Percentage() && s.ClientPriority == other.ClientPriority && maps.Equal(mine, theirs)
}

var (
	names   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	devices = regexp.MustCompile(`^(GPU|MIG)-[0-9A-Za-z/-]+$`)
)

const isMIG = "MIG-"

// Validate refuses what no daemon could be brought to.
func (s Spec) Validate() error {
	for _, check := range []func() error{
		func() error { return CheckName(s.Name) }, s.checkDevices, s.checkUsers, s.checkThreads, s.checkMemory,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// IsName reports whether a daemon can have a name.
func IsName(name string) bool { return names.MatchString(name) }

// CheckName refuses what cannot be the name of a daemon.
func CheckName(name string) error {
	if !IsName(name) {
		return fmt.Errorf("%q is no name for a daemon: it begins with a lowercase letter or a digit and has only lowercase letters, digits, - "+
			"and _, at most 63", name)
	}
	return nil
}

func (s Spec) checkDevices() error {
	if len(s.Devices) == 0 {
		return fmt.Errorf("it has no GPU")
	}
	for i, id := range s.Devices {
		switch {
		case !devices.MatchString(id):
			return fmt.Errorf("%q is not the UUID of a GPU or of a MIG device", id)
		case strings.HasPrefix(id, isMIG) && len(s.Devices) > 1:
			return fmt.Errorf("%s is a MIG device, of which a daemon has only one: declare a daemon for each", id)
		case slices.Contains(s.Devices[:i], id):
			return fmt.Errorf("%s is named twice", id)
		}
	}
	return nil
}

func (s Spec) checkUsers() error {
	switch {
	case s.User == nil && !s.MultiUser:
		return fmt.Errorf("it must be stated whose processes are its clients: one user's id, or those of several users")
	case s.User != nil && s.MultiUser:
		return fmt.Errorf("its clients are one user's or several users', not both")
	case s.User != nil && *s.User < 0:
		return fmt.Errorf("%d is not a user id", *s.User)
	}
	return nil
}

func (s Spec) checkThreads() error {
	if p := s.ActiveThreadPercentage; p != 0 && !IsPercentage(p) {
		return fmt.Errorf("the active thread percentage is %s: it is more than 0, at most 100, and has one digit after the point",
			FormatPercentage(p))
	}
	if s.ClientPriority != 0 && s.ClientPriority != 1 {
		return fmt.Errorf("the client priority is %d: it is 0, normal, or 1, below normal", s.ClientPriority)
	}
	return nil
}

func (s Spec) checkMemory() error {
	for _, id := range slices.Sorted(maps.Keys(s.PinnedMemory)) {
		limit := s.PinnedMemory[id]
		switch {
		case !slices.Contains(s.Devices, id):
			return fmt.Errorf("there is a memory limit for %s, which is not one of its devices", id)
		case limit%gpu.MiB != 0:
			return fmt.Errorf("the memory limit for %s is %d bytes, and must be whole MiB", id, limit)
		case gpu.RoundMPSLimit(limit) != limit:
			return fmt.Errorf("the memory limit for %s is %d MiB, and MPS takes only whole GiB from 1 GiB on: %d MiB or %d MiB would do",
				id, limit.MiB(), gpu.RoundMPSLimit(limit).MiB(), (gpu.RoundMPSLimit(limit) + gib).MiB())
		}
	}
	return nil
}

// Commands are what brings a fresh daemon to its settings, for systemd to
// give at each start.
func (s Spec) Commands() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "set_default_active_thread_percentage %s\n", FormatPercentage(s.Percentage()))
	fmt.Fprintf(&out, "set_default_client_priority %d\n", s.ClientPriority)
	for ordinal, id := range s.Devices {
		if limit := s.PinnedMemory[id]; limit != 0 {
			fmt.Fprintf(&out, "set_default_device_pinned_mem_limit %d %s\n", ordinal, FormatLimit(limit))
		}
	}
	return out.Bytes()
}
