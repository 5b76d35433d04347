package fakewmi

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
)

// newGUID is a random GUID as Hyper-V prints it.
func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as its documentation says
	return printGUID(b[:])
}

// derivedGUID is always the same GUID for the same parts.
func derivedGUID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(strings.Join(parts, "\x00"))))
	return printGUID(sum[:16])
}

func printGUID(b []byte) string {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16]))
}

var settingPattern = regexp.MustCompile(`(?i)^Microsoft:([0-9A-F-]{36})\\([0-9A-F-]{36})$`)

// settingID is the instance id of a setting of a VM or a pool.
func settingID(owner, id string) string {
	return "Microsoft:" + strings.ToUpper(owner) + `\` + strings.ToUpper(id)
}

// parseSettingID takes one apart.
func parseSettingID(s string) (owner, id string, ok bool) {
	m := settingPattern.FindStringSubmatch(s)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}
