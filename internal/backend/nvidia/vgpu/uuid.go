package vgpu

import (
	"crypto/sha1"
	"fmt"
)

// namespace is the project's, made once at random.
var namespace = [16]byte{0x5f, 0x0e, 0x5d, 0x3a, 0x91, 0x6c, 0x4b, 0x0e, 0x8d, 0x27, 0x3c, 0x4a, 0x77, 0x1b, 0xe2, 0x90}

// uuid is the name-based UUID (RFC 9562, version 5) of the n-th vGPU of a function.
func uuid(id string, function, n int) string {
	hash := sha1.New()
	hash.Write(namespace[:])
	fmt.Fprintf(hash, "%s/%d/%d", id, function, n)
	u := hash.Sum(nil)[:16]
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
