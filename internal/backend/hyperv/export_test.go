package hyperv

// What tests of the parts use.
var (
	Literal       = literal
	KeyOf         = keyOf
	InstanceOf    = instanceOf
	DriverVersion = driverVersion
	ParseEmbedded = parseEmbedded
	NewEmbedded   = newEmbedded
)

// Set is set.
func (e *embedded) Set(name string, value any) { e.set(name, value) }
