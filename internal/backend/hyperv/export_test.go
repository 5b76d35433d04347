package hyperv

import "time"

// What tests of the parts use.
var (
	Literal       = literal
	KeyOf         = keyOf
	InstanceOf    = instanceOf
	DriverVersion = driverVersion
	ParseEmbedded = parseEmbedded
	NewEmbedded   = newEmbedded
	ClassOf       = classOf
)

// Set is set.
func (e *embedded) Set(name string, value any) { e.set(name, value) }

// SettleIn is how long a test waits for the host to show what it was told.
func (b *Backend) SettleIn(d time.Duration) { b.patience = d }

// Refused is the error for a method's or a job's return value.
func Refused(value uint32, text string) error { return refused("Method", value, text) }

// ForgetCluster makes the cluster be read anew at the next call.
func (b *Backend) ForgetCluster() {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	b.cluster.readAt = time.Time{}
}

// Services are the names of the services that are known.
func Services() (names []string) {
	for _, s := range services {
		names = append(names, s.name)
	}
	return names
}
