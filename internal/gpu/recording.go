package gpu

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Recording is when and by what a host of a snapshot was recorded.
type Recording struct {
	At time.Time `json:"at"`
	// Agent is the version of the agent that answered.
	Agent string `json:"agent_version,omitempty"`
	// Digest is the SHA-256 of the host's entry, in hexadecimal.
	Digest string `json:"digest"`
}

// Record adds a host, as an agent of that version answered at that time.
func (s *Snapshot) Record(h Host, at time.Time, agent string) error {
	h.HeldBy = nil // it passes
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	digest, err := Digest(raw)
	if err != nil {
		return err
	}
	if s.Recorded == nil {
		s.Recorded = map[string]Recording{}
	}
	s.Hosts = append(s.Hosts, h)
	s.Recorded[h.Name] = Recording{At: at.UTC().Truncate(time.Second), Agent: agent, Digest: digest}
	return nil
}

// Digest is the SHA-256 of a JSON value, whatever the order of its fields and its white
// space, so that a file may be formatted by other programs.
func Digest(raw json.RawMessage) (string, error) {
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return "", err
	}
	canonical, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// Edited are the hosts of the file that data is which are not as they were recorded. The
// bytes are asked, and not what this version knows of them.
func (s Snapshot) Edited(data []byte) ([]string, error) {
	var raw struct {
		Hosts []json.RawMessage `json:"hosts"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, err
	}
	var out []string
	for i, h := range s.Hosts {
		r, ok := s.Recorded[h.Name]
		if !ok {
			continue
		}
		digest, err := Digest(raw.Hosts[i])
		if err != nil {
			return nil, err
		}
		if digest != r.Digest {
			out = append(out, h.Name)
		}
	}
	return out, nil
}
