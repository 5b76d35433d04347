package gpu

// UnreadableRecord is a record of the agent (a claim, the lease, a change in the journal)
// that it cannot read, because it is damaged or a newer agent wrote it. It is kept as it
// is, and until it can be read or is given up nothing on the host is changed.
type UnreadableRecord struct {
	// ID names it for `gpu-agent records drop`.
	ID string `json:"id"`
	// File is where it is.
	File string `json:"file,omitempty"`
	// Record says which of the file it is: "record 3 (change)".
	Record string `json:"record"`
	// Found is what is wrong with it, with the field.
	Found string `json:"found"`
	// Newer tells that a newer agent may be able to read it.
	Newer bool `json:"newer,omitempty"`
	// Agent is the version of the agent that wrote the file last; "" when it is not known.
	Agent string `json:"agent,omitempty"`
}

// String says what cannot be read, where it is and why.
func (r UnreadableRecord) String() string {
	s := r.Record
	if r.File != "" {
		s += " of " + r.File
	}
	s += " (" + r.ID
	if r.Agent != "" {
		s += ", written by agent " + r.Agent
	}
	return s + "): " + r.Found
}
